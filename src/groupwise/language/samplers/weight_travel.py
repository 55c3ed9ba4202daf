"""How new weights reach the servers: as an adapter, as a folder of full weights, or from GPU to GPU.

    prepare(model, version)   write or keep what will be sent, once per version
    send(servers)             give it to these servers; those that could not be reached are returned
    base(server)              the model to name in a request

A server that returns after a restart is sent the same things again. All ways leave a label behind, by which an answer's
tokens tell the version that made them.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from groupwise.errors import ConfigError, ContractError, GroupwiseError
from groupwise.files import disk
from groupwise.language.adapters import has_adapter, lora_of, merged_state
from groupwise.language.loading import LanguageModel, save_model
from groupwise.language.samplers.nccl_broadcast import NcclBroadcast
from groupwise.language.samplers.vllm_server import UPDATE, Lost, Refused, ServerLost, VllmServer, with_each

KEEP = 2  # versions on disk: the present one, and the one that a slow server may still be reading
DEV_MODE = "start it with `groupwise sampler start`, or with VLLM_SERVER_DEV_MODE=1"


class Travel(Protocol):
    """How weights travel. `label` is what the servers call the present version."""

    label: str

    def prepare(self, version: int) -> None: ...
    def send(self, servers: Sequence[VllmServer]) -> Lost: ...
    def model_name(self, server: VllmServer, base: str) -> str: ...
    def close(self, servers: Sequence[VllmServer]) -> None: ...


class FolderOfVersions:
    """A folder that this process and the servers see, with one folder for each of the last versions."""

    def __init__(self, folder: str | None) -> None:
        self.mark, self.count = uuid.uuid4().hex[:8], 0  # runs may share the folder and the servers
        if folder is None:
            self.path = Path(tempfile.mkdtemp(prefix="groupwise-weights-"))
        else:
            self.path = Path(folder).expanduser().resolve() / f"weights-{self.mark}"
        self.path.mkdir(parents=True, exist_ok=True)

    def write(self, language: LanguageModel, version: int, *, merged: bool) -> tuple[str, Path]:
        """Save a version, and remove those that nobody reads any more; return its label and its folder."""
        self.count += 1
        shutil.rmtree(self.path / str(self.count - KEEP), ignore_errors=True)
        with disk(self.path):
            folder = save_model(language, self.path / str(self.count), merged=merged)
        # The count makes labels unique: a resumed run may publish a version twice.
        return f"groupwise-{self.mark}-{self.count}-{version}", folder

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


class AdapterTravel:
    """A LoRA adapter, loaded by each server from the folder under a name of its own for every version.

    Requests name the adapter they want, so nothing needs to pause, and no cached prompt of an older version is used.
    """

    def __init__(self, language: LanguageModel, folder: FolderOfVersions) -> None:
        if not has_adapter(language.model):
            message = "vllm.weights = 'adapter' needs an adapter, but language.lora_rank = 0 trains all weights"
            raise ConfigError(message, hint="Set language.lora_rank, or vllm.weights = 'folder'.", field="vllm.weights")
        self.language, self.folder = language, folder
        self.label, self.path, self.loaded = "", folder.path, dict[VllmServer, str]()

    def prepare(self, version: int) -> None:
        self.label, self.path = self.folder.write(self.language, version, merged=False)

    def send(self, servers: Sequence[VllmServer]) -> Lost:
        return with_each(servers, self._load)

    def model_name(self, server: VllmServer, base: str) -> str:
        return self.loaded.get(server, base)

    def _load(self, server: VllmServer) -> None:
        try:
            server.call(
                "POST", "/v1/load_lora_adapter", {"lora_name": self.label, "lora_path": str(self.path)}, timeout=UPDATE
            )
        except Refused as refused:
            raise self._explained(server, refused) from refused
        except ServerLost as lost:
            # vLLM answers 500 to an adapter it cannot take.
            if "rank" in lost.message and "max_lora_rank" in lost.message:
                raise self._too_high(server) from lost
            raise
        before = self.loaded.get(server)
        self.loaded[server] = self.label
        if before not in (None, self.label):
            self._unload(server, str(before))

    def _unload(self, server: VllmServer, name: str) -> None:
        # A restarted server does not know it.
        with suppress(Refused, ServerLost):
            server.call("POST", "/v1/unload_lora_adapter", {"lora_name": name})

    def _explained(self, server: VllmServer, refused: Refused) -> GroupwiseError:
        if refused.is_route:
            return ConfigError(
                f"the server at {server.url} takes no adapters while it runs",
                hint="Start it with `groupwise sampler start --lora-rank N`, or with --enable-lora and "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1.",
                field="vllm.weights",
            )
        if "rank" in refused.message:
            return self._too_high(server)
        return ConfigError(
            f"the server at {server.url} cannot load the adapter: {refused.message}",
            hint=f"Does it see the folder {self.path}? Set vllm.folder to one that both machines share.",
            field="vllm.folder",
        )

    def _too_high(self, server: VllmServer) -> ConfigError:
        lora = lora_of(self.language.model)
        rank = 0 if lora is None else lora.rank
        return ConfigError(
            f"language.lora_rank = {rank} is more than the server at {server.url} allows",
            hint=f"Start it with --max-lora-rank {rank} (`groupwise sampler start --lora-rank {rank}`), or lower the "
            "rank.",
            field="language.lora_rank",
        )

    def close(self, servers: Sequence[VllmServer]) -> None:
        with_each([server for server in servers if server in self.loaded], lambda s: self._unload(s, self.loaded[s]))
        self.folder.remove()


class FolderTravel:
    """Full weights, reloaded by each server from the folder while it pauses. An adapter is merged into them."""

    def __init__(self, language: LanguageModel, folder: FolderOfVersions) -> None:
        self.language, self.folder = language, folder
        self.label, self.path = "", folder.path

    def prepare(self, version: int) -> None:
        self.label, self.path = self.folder.write(self.language, version, merged=True)

    def send(self, servers: Sequence[VllmServer]) -> Lost:
        return with_each(servers, self._reload)

    def model_name(self, server: VllmServer, base: str) -> str:
        return base

    def _reload(self, server: VllmServer) -> None:
        with paused(server):
            self._call_workers(server)
            _dev(server, "/reset_prefix_cache")
            _dev(server, "/update_weight_version", {"new_version": self.label})

    def _call_workers(self, server: VllmServer) -> None:
        """Call our own method of the server's workers, or vLLM's if they lack ours: see `inside`."""
        ours = {"method": "groupwise_reload", "kwargs": {"folder": str(self.path)}, "timeout": UPDATE}
        try:
            _dev(server, "/collective_rpc", ours)
        except ServerLost as lost:
            if "has no attribute 'groupwise_reload'" not in lost.message:
                raise
            theirs = {"method": "reload_weights", "kwargs": {"weights_path": str(self.path)}, "timeout": UPDATE}
            _dev(server, "/collective_rpc", theirs)

    def close(self, servers: Sequence[VllmServer]) -> None:
        self.folder.remove()


class TransferTravel:
    """Full weights over NCCL, from the learner's GPU to those of the servers, through vLLM's weight transfer engine.

    All servers and the learner form one group, so a server that was lost cannot join again. Only the protocol has been
    tested, without GPUs.
    """

    def __init__(self, language: LanguageModel, broadcast: NcclBroadcast | None = None) -> None:
        device = next(language.model.parameters()).device
        if broadcast is None and device.type != "cuda":
            message = f"vllm.weights = 'transfer' goes from GPU to GPU, but policy.device is {device}"
            raise ConfigError(
                message, hint="Set policy.device = 'cuda', or vllm.weights = 'folder'.", field="vllm.weights"
            )
        self.language, self.broadcast = language, broadcast or NcclBroadcast(device)
        self.mark, self.label = uuid.uuid4().hex[:8], ""
        self.group: tuple[VllmServer, ...] = ()

    def prepare(self, version: int) -> None:
        self.label = f"groupwise-{self.mark}-{version}"

    def model_name(self, server: VllmServer, base: str) -> str:
        return base

    def send(self, servers: Sequence[VllmServer]) -> Lost:
        if not servers:
            return []
        if not self.group:
            self._connect(servers)
        if set(servers) != set(self.group):
            gone = next(server for server in (*self.group, *servers) if (server in servers) != (server in self.group))
            raise ContractError(
                f"the server at {gone.url} was lost, and with it the NCCL group that new weights travel through",
                hint="Restart it and resume the run, or set vllm.weights = 'folder'.",
            )
        state = _full_state(self.language.model)
        update = {
            "names": list(state),
            "dtype_names": [str(tensor.dtype).removeprefix("torch.") for tensor in state.values()],
            "shapes": [list(tensor.shape) for tensor in state.values()],
        }
        lost = with_each(servers, lambda server: _dev(server, "/pause", query={"mode": "wait"}))
        lost += with_each(servers, lambda server: _dev(server, "/start_weight_update"))
        if not lost:
            with ThreadPoolExecutor(len(servers)) as pool:
                asked = pool.submit(with_each, servers, lambda s: _dev(s, "/update_weights", {"update_info": update}))
                for tensor in state.values():
                    self.broadcast.send(tensor)
                lost += asked.result()
        lost += with_each(servers, lambda server: _dev(server, "/finish_weight_update", {"weight_version": self.label}))
        return lost + with_each(servers, lambda server: _dev(server, "/resume"))

    def _connect(self, servers: Sequence[VllmServer]) -> None:
        """Open the group: the learner is rank 0, then come the GPUs of each server."""
        sizes = [int(server.call("GET", "/get_world_size")["world_size"]) for server in servers]
        world, first = 1 + sum(sizes), 1
        places = {}
        for server, size in zip(servers, sizes, strict=True):
            places[server], first = first, first + size
        ticket = self.broadcast.ticket()

        def join(server: VllmServer) -> None:
            told = {"nccl_unique_id_b64": ticket, "rank_offset": places[server], "world_size": world, "packed": False}
            _dev(server, "/init_weight_transfer_engine", {"init_info": told})

        # Joining blocks until every member has entered, this process among them.
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(with_each, servers, join)
            self.broadcast.join(world)
            for _, lost in asked.result():
                raise lost
        self.group = tuple(servers)

    def close(self, servers: Sequence[VllmServer]) -> None:
        with_each(
            [server for server in servers if server in self.group],
            lambda s: _dev(s, "/shutdown_weight_transfer_engine"),
        )


def travel_for(way: str | None, language: LanguageModel, folder: str | None, servers: Sequence[VllmServer]) -> Travel:
    """The way that the settings name; by default an adapter travels alone, and full weights through a folder."""
    way = way or ("adapter" if has_adapter(language.model) else "folder")
    if way == "transfer":
        return TransferTravel(language)
    if folder is None:
        _insist_on_this_machine(servers)
    shared = FolderOfVersions(folder)
    return AdapterTravel(language, shared) if way == "adapter" else FolderTravel(language, shared)


def _insist_on_this_machine(servers: Sequence[VllmServer]) -> None:
    for server in servers:
        host = server.url.rpartition("//")[2].partition("/")[0].rpartition(":")[0] or server.url
        if host not in ("127.0.0.1", "localhost", "[::1]"):
            raise ConfigError(
                f"the server at {server.url} is on another machine and cannot read this one's temporary files",
                hint="Set vllm.folder to a folder that both machines share.",
                field="vllm.folder",
            )


@contextmanager
def paused(server: VllmServer) -> Iterator[None]:
    """Inside the `with` block the server samples nothing; requests under way are finished first."""
    _dev(server, "/pause", query={"mode": "wait"})
    try:
        yield
    except GroupwiseError:
        # What went wrong first says more than a failure to resume.
        with suppress(GroupwiseError):
            _dev(server, "/resume")
        raise
    _dev(server, "/resume")


def _dev(server: VllmServer, path: str, body: dict[str, Any] | None = None, query: dict[str, str] | None = None) -> Any:
    """A route that vLLM only has in its development mode."""
    try:
        return server.call("POST", path, body, query=query, timeout=UPDATE)
    except Refused as refused:
        if refused.is_route:
            message = f"the server at {server.url} has no route {path}, which full weights need"
            raise ConfigError(message, hint=f"{DEV_MODE.capitalize()}; or train an adapter (language.lora_rank).",
                              field="vllm.weights") from None  # fmt: skip
        raise


def _full_state(model: Any) -> dict[str, Tensor]:
    """The plain model's weights, tied ones once, on the device of the model."""
    state = merged_state(model) if has_adapter(model) else model.state_dict()
    device = next(model.parameters()).device
    first = {tensor.data_ptr(): name for name, tensor in reversed(state.items())}
    return {
        name: tensor.detach().to(device).contiguous()
        for name, tensor in state.items()
        if first[tensor.data_ptr()] == name
    }
