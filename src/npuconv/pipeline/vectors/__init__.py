"""Integers in and out of every layer on the device, to test hardware with."""
