"""Synthetic sound and bytes, for models that no data at hand suits."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import wave
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime as ort

from harness.data import Role, dice
from harness.feeds import Array

RATE = 16000
_SYLLABLE = RATE // 5
_HARMONICS = np.arange(1, 41)


def _seed(kind: str, role: Role) -> np.random.Generator:
    return np.random.default_rng(dice(kind, role).getrandbits(32))


def speak(role: Role, seconds: int) -> Array:
    """Make a sound with the spectrum and rhythm of speech, in noise: values within -1..1.

    Syllables of harmonics under three moving formants, syllables of noise, and silence.
    """
    draw = _seed("speech", role)
    parts = [_syllable(draw) for _ in range(seconds * RATE // _SYLLABLE)]
    sound = np.concatenate(parts)
    noise = draw.normal(size=sound.size) * 10 ** draw.uniform(-3, -1.5)
    return np.clip(0.3 * sound + noise, -1, 1).astype(np.float32)


def _syllable(draw: np.random.Generator) -> Array:
    kind = draw.choice(3, p=(0.6, 0.2, 0.2))
    time = np.arange(_SYLLABLE) / RATE
    envelope = np.sin(np.pi * time / time[-1]) ** 0.7 * draw.uniform(0.2, 1.0)
    if kind == 2:
        return np.zeros(_SYLLABLE)
    if kind == 1:
        return 0.3 * envelope * np.diff(draw.normal(size=_SYLLABLE + 1))
    pitch = draw.uniform(90, 240) * (1 + draw.uniform(-0.2, 0.2) * time / time[-1])
    formants = draw.uniform((250, 800, 2200), (900, 2400, 3200))
    frequencies = _HARMONICS * pitch.mean()
    gains = sum(1 / (1 + ((frequencies - f) / 120) ** 2) for f in formants) / _HARMONICS**0.5
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    return envelope * (gains @ np.sin(np.outer(_HARMONICS, phase))) / 2


def play(role: Role, count: int, length: int) -> Array:
    """Chords of decaying notes at 22.05 kHz, [count, length, 1]."""
    draw = _seed("music", role)
    time = np.arange(length) / 22050
    sound = np.zeros((count, length))
    for row in sound:
        for _ in range(draw.integers(2, 12)):
            start, pitch = draw.uniform(0, time[-1]), 440 * 2 ** (draw.integers(-30, 30) / 12)
            since = np.maximum(time - start, 0)
            partials = [np.sin(2 * np.pi * pitch * n * since) / n**1.5 for n in range(1, 8)]
            row += draw.uniform(0.05, 0.2) * sum(partials) * np.exp(-3 * since) * (since > 0)
    return np.clip(sound, -1, 1)[..., None].astype(np.float32)


def _log_mel(sound: Array, bands: int) -> Array:
    """Log energies of 30 ms windows every 20 ms, [frames, bands]."""
    starts = range(0, sound.size - 480, 320)
    frames = np.stack([sound[k : k + 480] for k in starts]) * np.hanning(480)
    power = np.abs(np.fft.rfft(frames, 512)) ** 2
    mel = np.linspace(0, 2595 * np.log10(1 + 8000 / 700), bands + 2)
    edges = (700 * (10 ** (mel / 2595) - 1)) / 8000 * 256
    bins = np.arange(257)[:, None]
    rise = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    return np.log(power @ np.clip(np.minimum(rise, fall), 0, None) + 1e-6)


def spectrograms(role: Role, count: int) -> Array:
    """49 frames of 40 log mel energies each, 0..26, [count, 1960]."""
    energies = _log_mel(speak(role, count + 1), 40)
    energies = 26 * (energies - energies.min()) / np.ptp(energies)
    cut = [energies[k * 50 : k * 50 + 49].ravel() for k in range(count)]
    return np.stack(cut).astype(np.float32)


def enhance_feeds(model: Path, role: Role, count: int) -> dict[str, Array]:
    """Frames of a spectrum and the states the float model has by then (GTCRN)."""
    sound = speak(role, 1 + count * 12 * 256 // RATE)
    window = np.sqrt(np.hanning(513)[:512])
    spectra = (
        np.fft.rfft(sound[k * 256 : k * 256 + 512] * window) for k in range(sound.size // 256 - 1)
    )
    frames = ({"mix": _complex(s)} for s in spectra)
    states: dict[str, tuple[int, ...]] = {
        "conv_cache": (2, 1, 16, 16, 33),
        "tra_cache": (2, 3, 1, 1, 16),
        "inter_cache": (2, 1, 33, 16),
    }
    return _stream(model, frames, states, count, every=12)


def _complex(spectrum: Array) -> Array:
    return np.stack([spectrum.real, spectrum.imag], -1)[None, :, None].astype(np.float32)


def voice_feeds(model: Path, role: Role, count: int) -> dict[str, Array]:
    """Chunks of 512 samples after 64 of the chunk before, and the states (Silero VAD)."""
    sound = speak(role, 1 + count * 4 * 512 // RATE)
    chunks = (
        {"input": sound[None, k - 64 : k + 512], "sr": np.array(RATE, np.int64)}
        for k in range(512, sound.size - 512, 512)
    )
    return _stream(model, chunks, {"state": (2, 1, 128)}, count, every=4)


def _stream(
    model: Path,
    feeds: Iterator[dict[str, Array]],
    states: dict[str, tuple[int, ...]],
    count: int,
    every: int,
) -> dict[str, Array]:
    """Every so-manieth feed of a stream, with the states that the float model carries on."""
    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()][1:]
    states_now = {name: np.zeros(shape, np.float32) for name, shape in states.items()}
    samples: list[dict[str, Array]] = []
    for k, feed in enumerate(feeds):
        feed |= states_now
        if k % every == every - 1 and len(samples) < count:
            samples.append(feed)
        states_now = dict(zip(states_now, session.run(outputs, feed), strict=True))
    return {name: np.stack([feed[name] for feed in samples]) for name in samples[0]}


def file_bytes(folder: Path, role: Role, count: int) -> Array:
    """First and last 1024 bytes of files of many kinds, [count, 2048] (Magika)."""
    kinds = sorted(_files(folder, role), key=len)
    draw = dice("bytes", role)
    rows = [_head_and_tail(draw.choice(kinds)[draw.choice((0, 0, 0, 700)) :]) for _ in range(count)]
    return np.array(rows, np.int32)


def _head_and_tail(content: bytes) -> list[int]:
    """Bytes as the model was trained on: 256 stands where there is no byte."""
    first, last = list(content.strip()[:1024]), list(content.strip()[-1024:])
    return first + [256] * (2048 - len(first) - len(last)) + last


def _files(folder: Path, role: Role) -> Iterator[bytes]:
    """Photographs, arrays, models, notes, and the notes in other formats."""
    part = slice(0, None, 2) if role == "calib" else slice(1, None, 2)
    notes = sorted(folder.parent.glob("models/*/notes.json"))[part]
    yield from (path.read_bytes() for path in sorted(folder.glob("photos/*.jpg"))[part])
    yield from (path.with_name("model.onnx").read_bytes() for path in notes[:8])
    for path in notes:
        content = path.read_bytes()
        yield from (content, gzip.compress(content, mtime=0), lzma.compress(content))
        yield from (_zip(content), _wave(content), *_texts(json.loads(content)))


def _zip(content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo("notes.json"), content)
    return stream.getvalue()


def _wave(content: bytes) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as sound:
        sound.setparams((1, 1, 8000, 0, "NONE", ""))
        sound.writeframes(content)
    return stream.getvalue()


def _texts(notes: dict[str, object]) -> Iterator[bytes]:
    pairs = [(key, str(value)) for key, value in notes.items()]
    yield "\n".join(f"{key},{len(value)},{value!r}" for key, value in pairs).encode()
    yield ("<html><body>" + "".join(f"<p>{k}: {v}</p>" for k, v in pairs) + "</body>").encode()
    yield "".join(f"{k}: {v!r}\n" for k, v in pairs).encode()
    yield ("import sys\n\n" + "".join(f"{k} = {v!r}\n" for k, v in pairs)).encode()


def clips(role: Role, count: int, length: int) -> Array:
    """Clips of speech with different gain and noise, [count, length]."""
    draw = np.random.default_rng(dice("clips", role).getrandbits(32))
    sound = speak(role, 1 + count * length // RATE)
    rows = sound[: count * length].reshape(count, length)
    gain = 10 ** draw.uniform(-1.0, 0.3, (count, 1))
    noise = draw.normal(size=rows.shape) * 10 ** draw.uniform(-3.5, -1.3, (count, 1))
    return np.asarray(np.clip(rows * gain + noise, -1, 1), np.float32)


def spectra(sound: Array, window: Array, hop: int) -> Array:
    """Power spectra of centred windows, [frames, bins]; the window is as long as the FFT."""
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
        residue = draw.uniform(0, 0.5)
        parts = (far, near + echo, near + residue * echo)
        mels = [mel_decibels(part, 513, 256, 160) for part in parts]
        markers = (np.ones((20, 160)), np.zeros((20, 160))) if marked else ()
        rows.append(np.stack([np.concatenate([mel, *markers]) for mel in mels]))
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
