"""Inputs of models that rate or analyse speech, made from synthetic speech of 16 kHz."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort

from recipes.data import Role, dice
from recipes.feeds import Array
from recipes.sound import RATE, speak


def clips(role: Role, count: int, length: int) -> Array:
    """Clips of speech with different gain and noise, [count, length]."""
    draw = np.random.default_rng(dice("clips", role).getrandbits(32))
    sound = speak(role, 1 + count * length // RATE)
    rows = sound[: count * length].reshape(count, length)
    gain = 10 ** draw.uniform(-1.0, 0.3, (count, 1))
    noise = draw.normal(size=rows.shape) * 10 ** draw.uniform(-3.5, -1.3, (count, 1))
    return np.asarray(np.clip(rows * gain + noise, -1, 1), np.float32)


def spectra(sound: Array, window: Array, hop: int) -> Array:
    """Power spectra of centred windows, [frames, bins]; a window's length is that of the FFT."""
    size = window.size
    padded = np.pad(sound, size // 2, mode="reflect")
    starts = range(0, padded.size - size + 1, hop)
    frames = np.stack([padded[k : k + size] for k in starts]) * window
    return np.square(np.abs(np.fft.rfft(frames)))


def mel_bank(bins: int, bands: int, top: float = RATE / 2) -> Array:
    """Triangular filters on the mel scale, [bins, bands]."""
    mel = np.linspace(0, 2595 * np.log10(1 + top / 700), bands + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    frequencies = np.linspace(0, top, bins)[:, None]
    rise = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    return np.asarray(np.clip(np.minimum(rise, fall), 0, None) * 2 / (edges[2:] - edges[:-2]))


def mel_decibels(sound: Array, size: int, hop: int, bands: int) -> Array:
    """Mel energies in dB below the largest one, mapped to -1..1, [frames, bands]."""
    power = spectra(sound, np.hanning(size + 1)[:-1], hop)
    energies = 10 * np.log10(np.maximum(power @ mel_bank(power.shape[1], bands), 1e-10))
    return np.asarray(np.maximum(energies - energies.max(), -80) / 40 + 1, np.float32)


def rated_mels(role: Role, count: int) -> Array:
    """Nine seconds of 120 mel bands, [count, 900, 120] (DNSMOS P.808)."""
    sounds = clips(role, count, 144000)
    return np.stack([mel_decibels(sound, 321, 160, 120)[:900] for sound in sounds])


def rated_spectra(role: Role, count: int) -> Array:
    """Nine seconds of log power spectra, [count, 901, 161] (DNSMOS)."""
    window = np.hanning(321)[:-1]
    powers = (spectra(sound, window, 160) for sound in clips(role, count, 144000))
    return np.stack([np.log10(np.maximum(power, 1e-12)) for power in powers]).astype(np.float32)


def lossy_feeds(role: Role, count: int) -> dict[str, Array]:
    """Log spectra of five seconds with dropouts, and random raters (PLCMOS)."""
    draw = np.random.default_rng(dice("losses", role).getrandbits(32))
    rows = []
    for sound in clips(role, count, 5 * RATE):
        for start in draw.integers(0, sound.size - 1600, draw.integers(0, 8)):
            sound[start : start + draw.integers(160, 1600)] *= 0.01
        power = spectra(sound, np.hamming(513)[:-1], 256)
        rows.append(np.log(np.maximum(power, 1e-12))[None] / 20)
    raters = draw.normal(size=(count, 64)).astype(np.float32)
    return {"degraded_audio": np.stack(rows).astype(np.float32), "rater_embed": raters}


def echo_feeds(role: Role, count: int, *, marked: bool) -> dict[str, Array]:
    """Far end, microphone and result of an echo canceller as mel bands (AECMOS).

    Args:
        role: what the samples are for.
        count: number of samples.
        marked: append the markers of the scenario, here double talk.
    """
    length = 5 * RATE
    sounds = clips(role, 2 * count, length)
    draw = np.random.default_rng(dice("echoes", role).getrandbits(32))
    rows = []
    for far, near in zip(sounds[:count], sounds[count:], strict=True):
        echo = np.roll(far, 800) * draw.uniform(0.05, 0.7)
        left = draw.uniform(0, 0.5)
        parts = (far, near + echo, near + left * echo)
        mels = [mel_decibels(part, 513, 256, 160) for part in parts]
        ends = (np.ones((20, 160)), np.zeros((20, 160))) if marked else ()
        rows.append(np.stack([np.concatenate([mel, *ends]) for mel in mels]))
    states = np.zeros((count, 4, 1, 64), np.float32)
    return {"input": np.stack(rows).astype(np.float32), "h0": states}


def wake_feeds(mel_model: Path, role: Role, count: int) -> dict[str, Array]:
    """Windows of 76 mel frames from the package's own mel model (openWakeWord)."""
    session = ort.InferenceSession(str(mel_model), providers=["CPUExecutionProvider"])
    rows = []
    for sound in clips(role, count, RATE):
        (mels,) = session.run(None, {"input": (sound * 32767)[None].astype(np.float32)})
        rows.append(mels.reshape(-1, 32)[:76, :, None] / 10 + 2)
    return {"input_1": np.stack(rows).astype(np.float32)}
