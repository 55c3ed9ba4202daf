"""Which extra of the wheel installs which package: the one table behind every "pip install 'groupwise[…]'"."""

from collections.abc import Iterator, Mapping

from groupwise.errors import MissingExtra

PACKAGES: Mapping[str, str] = {
    "torch": "training",
    "safetensors": "training",
    "pyarrow": "training",
    "threadpoolctl": "training",
    "matplotlib": "figures",
    "PIL": "figures",
    "gymnasium": "control",
    "pygame": "control",
    "sklearn": "control",
    "optuna": "optuna",
    "Box2D": "box2d",
    "mujoco": "mujoco",
    "ale_py": "atari",
    "stable_baselines3": "sb3",
    "tensorboard": "tracking",
    "wandb": "tracking",
    "mlflow": "tracking",
    "transformers": "language",
    "peft": "language",
    "trl": "trl",
    "jax": "jax",
    "httpx2": "judge",
    "reasoning_gym": "reasoning-gym",
    "sympy": "symbolic",
    "llguidance": "structured",
    "mcp": "mcp",
    "textarena": "textarena",
    "numba": "workflows",
    "lxml": "workflows",
    "pydantic_monty": "sandbox",
    "fastapi": "service",
    "starlette": "service",
    "uvicorn": "service",
    "sqlalchemy": "service",
    "prometheus_client": "service",
    "psycopg": "postgres",
    "ray": "ray",
}
"""Importable package → extra."""


def missing_extra(error: BaseException) -> MissingExtra | None:
    """The missing extra that an error comes from, if any: itself, or anything it was raised from."""
    for cause in _causes(error):
        if isinstance(cause, MissingExtra):
            return cause
        package = str(getattr(cause, "name", None)).partition(".")[0]
        if isinstance(cause, ModuleNotFoundError) and package in PACKAGES:
            hint = f"pip install 'groupwise[{PACKAGES[package]}]'"
            return MissingExtra(f"this needs the package {package}, which is not installed", hint=hint)
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    # Chains of causes can be circular.
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
