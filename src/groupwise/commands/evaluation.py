"""`groupwise eval`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.table import Table

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.products import product_of
from groupwise.reporting.command_options import RUNS, Common, RunName, RunsDir, answer
from groupwise.training.checkpoint import choose_checkpoint
from groupwise.training.folder import find_run, read_config
from groupwise.training.session import Parts


def evaluate(
    run: RunName = "latest",
    *,
    episodes: Annotated[int, Parameter(validator=Number(gte=1), help="How many attempts.")] = 100,
    seed: Annotated[int | None, Parameter(help="First seed; by default the run's own.")] = None,
    samples: Annotated[
        int | None,
        Parameter(validator=Number(gte=1), help="Answers per problem, for pass@k; by default the run's own."),
    ] = None,
    step: Annotated[int | None, Parameter(help="Step of the checkpoint; by default the newest.")] = None,
    gif: Annotated[Path | None, Parameter(help="Also write the episode of the first seed as a GIF.")] = None,
    runs_dir: RunsDir = Path(RUNS),
    common: Common = Common(),
) -> None:
    """Evaluate the policy of a run on tasks it has not seen."""
    path = find_run(run, str(runs_dir))
    cfg = read_config(path)
    cfg = cfg.replace(
        eval_episodes=episodes,
        eval_seed=cfg.run.eval_seed if seed is None else seed,
        eval_samples=samples or cfg.run.eval_samples,
    )
    checkpoint = choose_checkpoint(path, step)
    product = product_of(cfg)
    parts = product.build(product.open_run(path, cfg, learning=False))
    parts.policy.load_state_dict(checkpoint.model)
    assert parts.evaluate is not None
    shown = None if gif is None else film(parts, cfg, gif)
    metrics = dict(parts.evaluate(parts.policy))
    if common.json:
        said = {"run": path.name, "step": checkpoint.step, "seed": cfg.run.eval_seed, "metrics": metrics}
        answer(said if gif is None else {**said, "gif": str(gif)})
        return
    console = Console()
    console.print(f"{path.name} at step {checkpoint.step}, seeds from {cfg.run.eval_seed}", highlight=False)
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in metrics.items():
        table.add_row(name.removeprefix("eval/").replace("_", " "), f"{value:,g}")
    console.print(table)
    if shown:
        console.print(shown, highlight=False)


def film(parts: Parts, cfg: TrainingConfig, path: Path) -> str:
    if parts.film is None:
        raise ConfigError(f"--gif: runs of the product {cfg.task.product!r} have nothing to draw")
    return parts.film(path, cfg.run.eval_seed)
