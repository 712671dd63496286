"""Files a stranger might send: generated, never committed.

``case``      what a case is
``corpus``    every case of every family
``driver``    runs commands on cases, in processes with limits
``verdict``   what must hold afterwards
"""
