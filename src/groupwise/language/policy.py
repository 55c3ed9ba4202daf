"""A Hugging Face causal language model as a `Policy`.

Column t of everything it returns belongs to the token at t, which the model predicted from the tokens before it;
outside the action mask everything is 0. Departures from how such models are usually trained:
- dropout is switched off for good: with it, no ratio to the recorded log-probabilities would be 1;
- the temperature is that of sampling, so that the policy that learns is the one that acted;
- the value head learns from the hidden states, but its gradient does not reach the model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from groupwise.errors import ConfigError, ContractError
from groupwise.language.adapters import adapter_dropout, has_adapter, insist_on_frozen_base, without_adapter
from groupwise.language.batch_layout import BatchLayout, SharedPrompts, can_share, close_up, lay_out, share_prompts
from groupwise.language.cpu_layers import find_cpu_layers
from groupwise.language.fused.choice import find_fused_layers
from groupwise.language.fused.packing import PackedRows, pack
from groupwise.language.logprobs import CHUNK_BYTES, find_head, full_logprobs
from groupwise.types import Evaluation, Tensors


class ValueHead(nn.Module):
    """Linear → ReLU → Dropout → Linear: hidden states [B, T, H] to values [B, T].

    The last layer starts small, so that a fresh head predicts about 0 everywhere and distorts no advantage.
    """

    def __init__(self, hidden_size: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.hidden = nn.Linear(hidden_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(hidden_size, 1)
        nn.init.normal_(self.out.weight, std=1.0 / (hidden_size + 1))
        nn.init.zeros_(self.out.bias)

    def forward(self, hidden_states: Tensor) -> Tensor:
        inner = self.dropout(torch.relu(self.hidden(hidden_states.to(self.hidden.weight.dtype))))
        values: Tensor = self.out(inner).squeeze(-1)
        return values


class LanguagePolicy:
    """Log-probabilities, entropies and values of the tokens a language model wrote.

    Args:
      model: a causal language model, or one in a PEFT adapter; see `loading.load_model`.
      temperature: of sampling; logits are divided by it.
      critic: put a value head on the hidden states.
      reference: keep a reference for the KL term. With an adapter that costs nothing: the model without it is the
        reference. Otherwise it is a frozen copy of the present model, or the policy given.
      seed: of the value head's weights.
      chunk_bytes: the most that the logits of a chunk of tokens may take; None for the device's default.
    """

    def __init__(
        self,
        model: Any,
        *,
        temperature: float = 1.0,
        critic: bool = False,
        reference: bool | LanguagePolicy = False,
        seed: int = 0,
        chunk_bytes: int | None = None,
    ) -> None:
        if not temperature > 0:
            raise ConfigError(f"a policy can only learn at a temperature above 0, not {temperature}")
        self.version = 0
        self.model, self.temperature, self.chunk_bytes = model, temperature, chunk_bytes
        self.has_adapter = has_adapter(model)
        # An adapter's dropout, if its settings ask for one, is on while the policy learns; all other dropout is off.
        dropout = adapter_dropout(model)
        _switch_off_dropout(model, dropout)
        model.eval()
        for module in dropout:
            module.register_forward_pre_hook(_on_while_learning)
        self.value_head = _value_head(model, seed) if critic else None
        self._head = find_head(model, temperature)
        self._shares_prompts = self._head is not None and can_share(self._head.decoder)
        self._cpu_layers = None if self._head is None else find_cpu_layers(model, self._head.decoder)
        self._fused = None if self._head is None else find_fused_layers(model, self._head.decoder, model.device)
        self.reference = reference if isinstance(reference, LanguagePolicy) else None
        # With an adapter, `reference_logp` makes the reference when it is first needed.
        if reference is True and self.has_adapter:
            insist_on_frozen_base(model)
        elif reference is True:
            twin = copy.deepcopy(model).requires_grad_(False)
            self.reference = LanguagePolicy(twin, temperature=temperature, chunk_bytes=chunk_bytes)

    @property
    def networks(self) -> list[nn.Module]:
        """The modules that hold its weights."""
        return [self.model, *([] if self.value_head is None else [self.value_head])]

    def twin(self, known: dict[int, Any]) -> LanguagePolicy:
        """A copy that reads all rows through the model's own modules, each called once: for weights in shards.

        Ranks collect weights module by module, in step, whatever rows they have. `known` says what takes the place of
        each weight, by its id, as `copy.deepcopy` wants it. The reference stays behind.
        """
        twin = copy.copy(self)
        twin.reference, twin._cpu_layers, twin._fused, twin._shares_prompts = None, None, None, False
        return copy.deepcopy(twin, known)

    def evaluate(self, inputs: Tensors) -> Evaluation:
        """Log-probability, entropy and value of the tokens of `action_mask`, all [B, T].

        Args:
          inputs: `input_ids`, `attention_mask` (1 where there is text) and `action_mask` (true where the policy
            wrote the token), all [B, T], padded anywhere. They may be on the CPU, and best are if `packs_rows`.
        """
        if self._fused is not None:
            return self._evaluate_packed(inputs)
        layout = lay_out({name: tensor.to(self.model.device) for name, tensor in inputs.items()})
        with self._checkpointing():
            logp, entropy, hidden = self._read(layout)
        value = None if self.value_head is None else layout.spread(self.value_head(hidden.detach()))
        return Evaluation(layout.spread(logp), layout.spread(entropy), value)

    @property
    def packs_rows(self) -> bool:
        """Whether rows are packed on the CPU: inputs that are there already need not come back from the GPU."""
        return self._fused is not None

    def _evaluate_packed(self, inputs: Tensors) -> Evaluation:
        assert self._fused is not None
        assert self._head is not None
        layout = lay_out({name: tensor.to("cpu") for name, tensor in inputs.items()})
        rows: PackedRows = pack(layout, self.model.device)
        saves_memory = bool(self._recomputing_layers())
        hidden = self._fused.hidden(rows, keeps=not saves_memory)
        # Who has layers run again to save memory does not want it spent on logits.
        chunk_bytes = self.chunk_bytes or (CHUNK_BYTES["cuda"] // 2 if saves_memory else None)
        logp, entropy = self._head.logprobs(hidden, rows.tokens, chunk_bytes)
        value = None if self.value_head is None else rows.spread_out(self.value_head(hidden.detach()))
        return Evaluation(rows.spread_out(logp), rows.spread_out(entropy), value)

    @torch.no_grad()
    def reference_logp(self, inputs: Tensors) -> Tensor:
        """The reference model's log-probabilities of the same tokens, [B, T]."""
        if self.reference is None and self.has_adapter:
            plain = without_adapter(self.model)
            self.reference = LanguagePolicy(plain, temperature=self.temperature, chunk_bytes=self.chunk_bytes)
        if self.reference is None:
            hint = "Create it with LanguagePolicy(..., reference=True)."
            raise ContractError("this policy has no reference model", hint=hint)
        return self.reference.evaluate(inputs).logp

    @torch.no_grad()
    def values(self, inputs: Tensors) -> Tensor:
        """The value of every prefix, [B, T]: column t has seen the tokens up to and including t; 0 on padding."""
        if self.value_head is None:
            hint = "Create it with LanguagePolicy(..., critic=True)."
            raise ContractError("this policy has no value head", hint=hint)
        attention = inputs["attention_mask"].bool()
        ids, columns = close_up(inputs["input_ids"], attention)
        values: Tensor = self.value_head(self._hidden(ids))
        return values.new_zeros(attention.shape).scatter(1, columns, values).masked_fill(~attention, 0)

    def actor_parameters(self) -> list[nn.Parameter]:
        """The weights that training changes: the adapter's if there is one, else all."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def critic_parameters(self) -> list[nn.Parameter]:
        return [] if self.value_head is None else list(self.value_head.parameters())

    def state_dict(self) -> dict[str, Tensor]:
        """The weights training can change, tied ones once; with an adapter, only the adapter's."""
        return {name: tensor.detach() for name, tensor in self._state().items()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copy weights from `state_dict`, in place."""
        own = self._state()
        _check_state(own, state)
        for name, tensor in own.items():
            tensor.copy_(state[name])

    def _read(self, layout: BatchLayout) -> tuple[Tensor, Tensor, Tensor]:
        places = (layout.rows, layout.before)
        if self._head is None:
            return full_logprobs(self.model, layout.ids, places, layout.tokens, self.temperature, self.chunk_bytes)
        shared = share_prompts(layout) if self._shares_prompts and not self._recomputing_layers() else None
        if shared is not None:
            # Columns of the rests, which begin where each row's prompt ends.
            places = (layout.rows, layout.before - shared.start[layout.rows])
        hidden = self._head.hidden(layout.ids) if shared is None else self._read_shared(shared, self._head.decoder)
        hidden = hidden[places]
        return *self._head.logprobs(hidden, layout.tokens, self.chunk_bytes), hidden

    def _read_shared(self, shared: SharedPrompts, decoder: Any) -> Tensor:
        # Under autocast the model's own modules choose the precision of every operation.
        if self._cpu_layers is None or torch.is_autocast_enabled("cpu"):
            return shared.hidden(decoder)
        return self._cpu_layers.hidden(shared)

    def _recomputing_layers(self) -> list[nn.Module]:
        """Layers that recompute activations in the backward pass; these cannot take keys and values of a prompt."""
        if not torch.is_grad_enabled():
            return []
        return [m for m in self.model.modules() if getattr(m, "gradient_checkpointing", False)]

    def _hidden(self, ids: Tensor) -> Tensor:
        if self._head is not None:
            return self._head.hidden(ids)
        states: Tensor = self.model(input_ids=ids, use_cache=False, output_hidden_states=True).hidden_states[-1]
        return states

    def _state(self) -> dict[str, Tensor]:
        named = {f"model.{name}": t for name, t in self.model.state_dict(keep_vars=True).items()}
        if self.has_adapter:
            named = {name: tensor for name, tensor in named.items() if tensor.requires_grad}
        if self.value_head is not None:
            named.update({f"value_head.{name}": t for name, t in self.value_head.state_dict(keep_vars=True).items()})
        # Tied weights appear under several names; the first name keeps them.
        first = {id(tensor): name for name, tensor in reversed(named.items())}
        return {name: tensor for name, tensor in named.items() if first[id(tensor)] == name}

    @contextmanager
    def _checkpointing(self) -> Iterator[None]:
        """Put layers that should recompute their activations into training mode: only there do they."""
        layers = self._recomputing_layers()
        for layer in layers:
            layer.training = True
        try:
            yield
        finally:
            for layer in layers:
                layer.training = False


def _on_while_learning(dropout: nn.Module, _: Any) -> None:
    # Also when a layer is run again in the backward pass, but not when the model samples.
    dropout.training = torch.is_grad_enabled()


def _switch_off_dropout(model: nn.Module, wanted: Sequence[nn.Module]) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout) and module not in wanted:
            module.p = 0.0
        # Many attention modules keep their dropout as a plain number.
        for name, value in vars(module).items():
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)


def _value_head(model: Any, seed: int) -> ValueHead:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        head = ValueHead(model.config.get_text_config().hidden_size, dropout=0.0)
    return head.to(next(model.parameters()).device).eval()


def _check_state(own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    for name in sorted(own.keys() ^ state.keys()):
        where = "lacks" if name in own else "has an unknown weight"
        raise ContractError(f"this state belongs to another model or adapter: it {where} {name}")
    for name, tensor in own.items():
        if tensor.shape != state[name].shape:
            shapes = f"{list(state[name].shape)}, not {list(tensor.shape)}"
            raise ContractError(f"this state belongs to another model: {name} is {shapes}")
