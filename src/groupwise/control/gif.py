"""A greedy episode as a GIF: Gymnasium draws every state, Pillow joins the frames."""

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from groupwise.control.atari import Atari
from groupwise.control.environments import OWN, make
from groupwise.control.gymnasium_environment import GymnasiumEnvironment
from groupwise.control.gymnasium_ids import import_gymnasium
from groupwise.control.multitask import MultiTask
from groupwise.errors import ConfigError, MissingExtra
from groupwise.files import write_output
from groupwise.rollout.contract import action_mask_of
from groupwise.rollout.episodes import Greedy
from groupwise.types import Array, VectorEnvironment

# Pixels, frames and palette size: 500 steps of CartPole make a file of about 55 kB.
WIDTH = 300
MOST_FRAMES = 250
COLOURS = 64
# Browsers slow down GIFs whose frames are shorter than this.
SHORTEST_MS = 20


@dataclass(frozen=True)
class Film:
    """A GIF that was written: the episode's return and length, and the number of frames."""

    path: Path
    total: float
    length: int
    frames: int


def write_gif(policy: Greedy, environment: VectorEnvironment | str, path: Path | str, *, seed: int = 0) -> Film:
    """Play one greedy episode from `seed` and write it to `path`; of a long episode, only every n-th step."""
    target = Path(path)
    if target.suffix.casefold() != ".gif":
        raise ConfigError(f"{target} does not end in .gif", hint="Use a file name that ends in .gif.")
    env = make(environment) if isinstance(environment, str) else environment
    if isinstance(env, GymnasiumEnvironment | MultiTask):
        env = env.drawn()
    obs = env.reset([seed])
    shoot, fps = camera(env, seed)
    pictures, total, length, ended = [shoot()], 0.0, 0, False
    while not ended and length < env.max_steps:
        mask = action_mask_of(env, 1)
        # A policy gets a mask only from environments that forbid actions.
        actions = policy.greedy(obs) if mask is None else policy.greedy(obs, mask)  # type: ignore[call-arg]
        obs, rewards, terminated, truncated = env.step(actions)
        total, length, ended = total + float(rewards[0]), length + 1, bool(terminated[0] or truncated[0])
        pictures.append(shoot())
    stride = -(-len(pictures) // MOST_FRAMES)
    shown = [small(picture) for picture in [*pictures[:-1:stride], pictures[-1]]]
    content = io.BytesIO()
    duration = max(SHORTEST_MS, round(1000 / fps))
    shown[0].save(content, "GIF", save_all=True, append_images=shown[1:], duration=duration, loop=0)
    write_output(target, content.getvalue())
    return Film(target, total, length, len(shown))


def camera(env: VectorEnvironment, seed: int) -> tuple[Callable[[], Array], float]:
    """A function that draws the only copy of `env`, and the frames per second."""
    if isinstance(env, MultiTask):
        return camera(env.parts[seed % len(env.parts)].environment, seed)
    if isinstance(env, GymnasiumEnvironment | Atari):
        return _drawing(env.name, env.render), env.frames_per_second
    renderer = renderer_of(env)

    def shoot() -> Array:
        states: Any = env.states  # type: ignore[attr-defined]
        renderer.state = states[0]
        picture: Array = renderer.render()
        return picture

    return _drawing(type(env).__name__, shoot), float(renderer.metadata["render_fps"])


def renderer_of(env: VectorEnvironment) -> Any:
    """Gymnasium's counterpart of one of our environments, used only to draw."""
    _without_a_screen()
    name = next((name for name, kind in OWN.items() if kind is type(env)), None)
    if name is None:
        raise ConfigError(
            f"{type(env).__name__} cannot be drawn: it is neither a Gymnasium environment nor one of {', '.join(OWN)}",
            hint="Register it with Gymnasium and give it the render mode rgb_array.",
        )
    renderer: Any = import_gymnasium().make(name, render_mode="rgb_array").unwrapped
    renderer.reset(seed=0)
    if hasattr(env, "half_length"):
        renderer.length = env.half_length
    return renderer


def small(picture: Array) -> Image.Image:
    image = Image.fromarray(np.ascontiguousarray(picture, np.uint8))
    height = max(1, round(image.height * WIDTH / image.width))
    return image.resize((WIDTH, height), Image.Resampling.BILINEAR).quantize(COLOURS)


def _drawing(name: str, shoot: Callable[[], Any]) -> Callable[[], Array]:
    """`shoot`, with a clear error if drawing needs a missing package or does not return a picture."""
    _without_a_screen()
    gym = import_gymnasium()

    def shot() -> Array:
        try:
            picture = shoot()
        except (gym.error.DependencyNotInstalled, ImportError) as error:
            hint = 'Install it: pip install "groupwise[control]"'
            raise MissingExtra(f"drawing {name} needs a package that is not installed: {error}", hint=hint) from error
        if not isinstance(picture, np.ndarray) or picture.ndim != 3 or picture.shape[2] != 3:
            raise ConfigError(f"{name} cannot be drawn: its render mode rgb_array returned {picture!r:.60}")
        return picture

    return shot


def _without_a_screen() -> None:
    """Draw in memory: pygame must neither open a screen nor print its greeting."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
