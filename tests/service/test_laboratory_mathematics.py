"""The laboratory's mathematics, as it stands in the committed bundle, against `groupwise.core` to 1e-6."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.control.papers.gpmixture import Kernel, ProcessMixture, predict
from groupwise.control.soft_modules import soft_route
from groupwise.core import group_advantages, policy_loss, project_conflicts
from groupwise.core.divergence import ReferenceKl, kl_estimate
from groupwise.service.routes.page import FOLDER

Answers = Callable[[Sequence[str]], list[Any]]
NODE = shutil.which("node")


@pytest.fixture(scope="module")
def calculate(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Evaluates JavaScript expressions of `m`, the bundle's mathematics."""
    if NODE is None:
        pytest.skip("Node runs the page's mathematics: apt install nodejs")
    folder = tmp_path_factory.mktemp("bundle")
    for file in (FOLDER / "assets").glob("*.js"):
        shutil.copy(file, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    (mathematics,) = folder.glob("mathematics-*.js")

    def run(expressions: Sequence[str]) -> list[Any]:
        script = f'import * as m from "./{mathematics.name}";\nconst all = [{",".join(expressions)}];\n'
        (folder / "asked.js").write_text(script + "console.log(JSON.stringify(all))")
        done = subprocess.run([str(NODE), "asked.js"], cwd=folder, capture_output=True, text=True, check=True)
        found: list[Any] = json.loads(done.stdout)
        return found

    return run


def call(name: str, *arguments: Any) -> str:
    """A call in JavaScript, where NaN and Infinity are written as json.dumps writes them."""
    return f"m.{name}({', '.join(json.dumps(argument) for argument in arguments)})"


def close(found: Any, wanted: Any) -> None:
    ours, theirs = (torch.as_tensor(values, dtype=torch.float64) for values in (found, wanted))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


def test_advantages_are_those_of_core(calculate: Answers) -> None:
    random = np.random.default_rng(0)
    # Groups of one, of two, without spread, with a missing score, interleaved, and far from 0.
    batches = [
        ([1.0, 1.0, 0.0, 1.0, 0.0, 3.0], [0, 0, 0, 1, 1, 2]),
        ([0.5, 0.5, 0.5, 2.0, float("nan"), 1.0, 4.0], [7, 7, 7, -1, -1, -1, 7]),
        ([1e9, 1e9 + 1e-3, 5.0, 5.0], [0, 0, 1, 1]),
        ([0.2, 0.2], [0, 0]),
        (random.normal(size=40).tolist(), random.integers(0, 9, 40).tolist()),
        ((100 * random.normal(size=30)).tolist(), random.integers(0, 30, 30).tolist()),
    ]
    choices = list(
        itertools.product(
            ("group_mean", "group_median", "leave_one_out", "global_mean", "none"),
            ("group_std", "batch_std", "none"),
            ("population", "sample"),
        )
    )
    asked = [
        (rewards, groups, {"baseline": baseline, "scale": scale, "std": std})
        for rewards, groups in batches
        for baseline, scale, std in choices
    ]
    found = calculate([call("groupAdvantages", *one) for one in asked])
    for (rewards, groups, chosen), ours in zip(asked, found, strict=True):
        wanted = group_advantages(torch.tensor(rewards, dtype=torch.float64), torch.tensor(groups), **chosen)
        close(ours, wanted)


@pytest.mark.parametrize(("loss", "aggregation"), [("grpo", "mean_of_means"), ("dapo", "tokens")])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_loss_and_its_slope_are_those_of_core(
    calculate: Answers, loss: str, aggregation: str, estimator: Any
) -> None:
    random = torch.Generator().manual_seed(1)
    shape = (6, 5)
    logp, behavior, frozen = (-torch.rand(shape, generator=random, dtype=torch.float64) * 2 for _ in range(3))
    mask = torch.rand(shape, generator=random) > 0.3
    advantages = torch.randn(6, generator=random, dtype=torch.float64)
    for beta, corrected in ((0.0, True), (0.3, True), (0.3, False)):
        logp = logp.detach().requires_grad_()
        wanted = policy_loss(
            logp, behavior, advantages, mask, denominator=7.0, loss_type=loss, clip_low=0.1, clip_high=0.3,
            reference=ReferenceKl(frozen, beta, estimator, corrected),
        )  # fmt: skip
        wanted.loss.backward()
        parts = {"logp": logp, "behavior": behavior, "advantages": advantages, "mask": mask}
        batch = {name: values.tolist() for name, values in parts.items()}
        reference = {"logp": frozen.tolist(), "beta": beta, "estimator": estimator, "corrected": corrected}
        chosen = {"low": 0.1, "high": 0.3, "denominator": 7.0, "aggregation": aggregation, "reference": reference}
        (found,) = calculate([call("policyLoss", batch, chosen)])
        close(found["loss"], wanted.loss.item())
        close(found["slopes"], logp.grad)
        close(found["clippedShare"], wanted.clip_low_fraction + wanted.clip_high_fraction)
        (kl,) = calculate([call("klEstimate", -0.5, -1.25, estimator)])
        close(kl, kl_estimate(torch.tensor(-0.5), torch.tensor(-1.25), estimator=estimator))


ADAM = """(() => { const w = [1, -2]; const adam = new m.Adam(2, 0.1);
for (let k = 1; k < 6; k++) adam.step(w, [k * w[0], Math.sin(k)]); return w; })()"""


def test_the_policys_gradients_and_steps_are_those_of_torch(calculate: Answers) -> None:
    logits = torch.tensor([0.3, -1.2, 2.0, 0.0], dtype=torch.float64, requires_grad=True)
    logp = logits.log_softmax(0)
    (0.7 * logp[2]).backward(retain_graph=True)
    chosen, logits.grad = logits.grad, None
    (-1.5 * (logp.exp() * logp).sum()).backward()
    chances = f"m.softmax({logits.tolist()})"
    found = calculate(
        [
            chances,
            f"(() => {{ const g = [0, 0, 0, 0]; m.addLogpGradient(g, {chances}, 2, 0.7); return g; }})()",
            f"(() => {{ const g = [0, 0, 0, 0]; m.addEntropyGradient(g, {chances}, 1.5); return g; }})()",
            ADAM,
        ]
    )
    close(found[0], logp.exp().detach())
    close(found[1], chosen)
    close(found[2], logits.grad)
    weights = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([weights], lr=0.1)
    for k in range(1, 6):
        weights.grad = torch.stack([k * weights.detach()[0], torch.tensor(float(k), dtype=torch.float64).sin()])
        adam.step()
    close(found[3], weights.detach())


def test_the_small_networks_gradient_is_that_of_torch(calculate: Answers) -> None:
    random = torch.Generator().manual_seed(2)
    first, shift, second, offset = (
        torch.randn(*size, generator=random, dtype=torch.float64, requires_grad=True)
        for size in ((3, 4), (4,), (4, 2), (2,))
    )
    seen, slopes = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64), torch.tensor([0.3, -0.8], dtype=torch.float64)
    outputs = (seen @ first + shift).tanh() @ second + offset
    (outputs * slopes).sum().backward()
    parts = (first, shift, second, offset)
    flat = torch.cat([part.detach().flatten() for part in parts]).tolist()
    shape = json.dumps({"inputs": 3, "hidden": 4, "outputs": 2})
    script = f"""(() => {{ const w = {flat}, x = {seen.tolist()}, g = w.map(() => 0), p = m.forward({shape}, w, x);
    m.addGradient({shape}, w, x, p, {slopes.tolist()}, g); return [p.outputs, g]; }})()"""
    (found,) = calculate([script])
    close(found[0], outputs.detach())
    close(found[1], torch.cat([part.grad.flatten() for part in parts if part.grad is not None]))


def test_surgery_and_routing_are_those_of_python(calculate: Answers) -> None:
    random = torch.Generator().manual_seed(3)
    gradients = torch.randn(4, 3, generator=random, dtype=torch.float64)
    orders = torch.stack([torch.randperm(4, generator=random) for _ in range(4)])
    outputs = torch.randn(4, 5, generator=random, dtype=torch.float64)
    logits = torch.randn(2, 4, generator=random, dtype=torch.float64)
    found = calculate(
        [
            call("projectConflicts", gradients.tolist()),
            call("projectConflicts", gradients.tolist(), orders.tolist()),
            call("projectConflicts", [[1.0, 0.0], [0.0, 0.0], [-1.0, 1.0]]),
            call("softRoute", outputs.tolist(), logits.tolist()),
        ]
    )
    close(found[0], project_conflicts(gradients))
    close(found[1], project_conflicts(gradients, orders))
    close(found[2], project_conflicts(torch.tensor([[1.0, 0.0], [0.0, 0.0], [-1.0, 1.0]])))
    close(found[3], soft_route(outputs, logits))


def test_processes_and_their_mixture_are_those_of_python(calculate: Answers) -> None:
    random = np.random.default_rng(4)
    kernel = Kernel(length=0.7, signal=1.5, noise=0.2)
    points, answers = random.normal(size=(60, 2)), random.normal(size=(60, 2))
    # Three tasks by turns: each adds an offset of its own.
    answers += np.repeat([0.0, 3.0, -3.0, 0.0, 3.0, -3.0], 10)[:, np.newaxis]
    choices = {"concentration": 0.5, "stickiness": 20.0, "capacity": 15}
    mixture = ProcessMixture(kernel, **choices)  # type: ignore[arg-type]
    wanted = [(mixture.expect(x).tolist(), mixture.see(x, y)) for x, y in zip(points, answers, strict=True)]
    options = json.dumps({"length": 0.7, "signal": 1.5, "noise": 0.2})
    asked = f"m.predict({options}, {points[:20].tolist()}, {answers[:20].tolist()}, {points[20:25].tolist()})"
    script = f"""(() => {{ const mixture = new m.ProcessMixture({options}, {json.dumps(choices)});
    const xs = {points.tolist()}, ys = {answers.tolist()};
    return xs.map((x, at) => [mixture.expect(x), mixture.see(x, ys[at])]); }})()"""
    means, found = calculate([asked, script])
    expected, variances = predict(kernel, points[:20], answers[:20], points[20:25])
    close(means["means"], expected)
    close(means["variances"], variances)
    assert [task for _, task in found] == [task for _, task in wanted]
    assert len({task for _, task in found}) > 2
    for (ours, _), (theirs, _) in zip(found[1:], wanted[1:], strict=True):
        close(ours, theirs)


PROMISES = {
    "clip_never_acts": lambda right, broken: right > 0.8 and broken < right - 0.2,
    "advantage_clipped": lambda right, broken: right > 0.8 and broken < right - 0.15,
    "entropy_added": lambda right, broken: right > 0.6 and broken < 0.25,
    "tokens_misaligned": lambda right, broken: right > 0.8 and broken < 0.25,
    "single_keeps_reward": lambda right, broken: right == 0 and broken > 0.5,
    "advantages_after_shuffle": lambda right, broken: right > 0.8 and broken < 0.5,
    "ratio_to_itself": lambda right, broken: right > 0.7 and broken < right - 0.2,
    "other_std": lambda right, broken: abs(right - 1) < 1e-9 and abs(broken - 0.5**0.5) < 1e-9,
    "crash_scores_zero": lambda right, broken: right < 0.4 and broken > 0.9,
    "scores_padded": lambda right, broken: right > 0.8 and broken < right - 0.1,
    "scores_rescaled": lambda right, broken: right == 0 and broken > 1,
}
"""What each fault does to its own number; the page's test reads the same from the screen."""


def test_every_fault_changes_what_it_is_about_whatever_the_seeds(calculate: Answers) -> None:
    seeds = [[1, 2, 3, 4], [11, 12, 13, 14], [21, 22, 23, 24]]
    found = calculate(
        [
            f"m.pitfalls.PITFALLS.map((one) => [one.fault, ...[false, true].map("
            f"(isBroken) => m.pitfalls.outcomeOf(one, m.pitfalls.curveOf(one, isBroken, {some})))])"
            for some in seeds
        ]
    )
    for table in found:
        assert [name for name, *_ in table] == list(PROMISES)
        assert [row for row in table if not PROMISES[row[0]](*row[1:])] == []


def test_the_bundle_has_one_file_of_mathematics() -> None:
    assert len(list(Path(FOLDER / "assets").glob("mathematics-*.js"))) == 1
