"""Runs in the environment of the package `verifiers`, apart from ours: one process that plays its episodes for us.

Lines of JSON, asked on standard input and answered on standard output:

    {"open": "TASKSET", "args": {…}}                            → {"tasks": 12}
    {"id": 3, "task": 7, "base_url": "…", "key": "…"}           → {"id": 3, "score": 0.5, "parts": {…}}

An episode that fails is answered with "error". Nothing of Groupwise is imported here, and nothing else is written to
standard output: what the package or an environment prints goes to standard error.
"""

import asyncio
import itertools
import json
import os
import sys
from typing import Any

MOST_TASKS = 100_000  # of a taskset without end


class TasksetEpisodes:
    """A taskset of verifiers and the agents that play it."""

    def __init__(self, taskset: str, args: dict[str, Any]) -> None:
        import verifiers.v1 as vf
        from verifiers.v1.utils.generic import concrete_type
        from verifiers.v1.utils.loaders import environment_class

        kind = environment_class(taskset)
        config = concrete_type(kind, vf.EnvConfig, origin=vf.Env) or vf.EnvConfig
        given = {**args, "taskset": {**args.get("taskset", {}), "id": taskset}}
        if kind is vf.SingleAgentEnv and "agent" not in given:
            # Unless told otherwise: here, not on rented machines, and without running what a model writes.
            given["agent"] = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
        self.env = kind(config.model_validate(given))
        self.tasks = list(itertools.islice(self.env.taskset, MOST_TASKS))

    async def play(self, asked: dict[str, Any]) -> dict[str, Any]:
        import verifiers.v1 as vf

        variable = f"GROUPWISE_KEY_{asked['id']}"
        os.environ[variable] = asked["key"]
        try:
            client = vf.EvalClientConfig(base_url=asked["base_url"], api_key_var=variable)
            (slot,) = self.env.slots(self.tasks[asked["task"]], 1)
            episode = await self.env.run_slot(slot, vf.ModelContext(model="policy", client=client))
        finally:
            os.environ.pop(variable, None)
        faults = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        if faults or not episode.traces:
            return {"error": str(faults[0].message if faults else "no agent was run")[:500]}
        # A reward is a number, or since 0.4.0 an object with a score and a weight.
        rewards = [pair for trace in episode.traces for pair in trace.rewards.items()]
        parts = {name: float(getattr(value, "value", value)) for name, value in rewards if value is not None}
        return {"score": sum(float(trace.reward) for trace in episode.traces) / len(episode.traces), "parts": parts}


async def serve(out: int) -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    playing: set[asyncio.Task[None]] = set()

    def tell(answer: dict[str, Any]) -> None:
        os.write(out, json.dumps(answer).encode() + b"\n")

    try:
        asked = json.loads(await lines.readline())
        episodes = TasksetEpisodes(asked["open"], asked["args"])
    except Exception as error:
        tell({"error": f"{type(error).__name__}: {error}"[:500]})
        return
    async with episodes.env.serving():
        tell({"tasks": len(episodes.tasks)})

        async def answer(asked: dict[str, Any]) -> None:
            try:
                found = await episodes.play(asked)
            except Exception as error:
                found = {"error": f"{type(error).__name__}: {error}"[:500]}
            tell({"id": asked["id"], **found})

        while line := await lines.readline():
            task = asyncio.ensure_future(answer(json.loads(line)))
            playing.add(task)
            task.add_done_callback(playing.discard)
        for task in playing:
            task.cancel()


if __name__ == "__main__":
    answers = os.dup(1)
    os.dup2(2, 1)
    try:
        asyncio.run(serve(answers))
    except SystemExit as error:  # the package ends the program where something is missing
        os.write(answers, json.dumps({"error": str(error)[:500]}).encode() + b"\n")
