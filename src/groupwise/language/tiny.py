"""`model_name="tiny"`: a small transformer and its tokenizer, both made from scratch, for learning offline on a CPU.

Four layers of width 128 in the Llama shape with tied embeddings, about 0.9 million parameters. The weights depend on
the seed alone: not on the global random state, which is neither read nor moved, nor on how a version of Transformers
happens to initialise.

Printable ASCII and the newline each have a token, so decoding an encoded text gives the same text. Any other character
becomes `<unk>`. A turn is the token of its role, its text, and `<|end|>`, which also ends the sequence: the frame costs
two tokens, so short questions stay short. The context of 2,048 tokens holds six turns of any environment shipped.
"""

import math
import re
from collections.abc import Iterable
from typing import Any

import torch

from groupwise.language.model_lookup import import_extra

PAD, UNKNOWN, BEGIN, END = "<pad>", "<unk>", "<bos>", "<|end|>"
ROLES = tuple(f"<|{role}|>" for role in ("system", "user", "assistant", "tool"))
SPECIALS = (PAD, UNKNOWN, BEGIN, END, *ROLES)
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))

# The generation marks show which tokens the assistant wrote (apply_chat_template's assistant mask). Tools are listed
# by name and arguments in a separate system turn; a call is a line `@name {"argument": value}`.
CHAT_TEMPLATE = (
    "{%- if tools -%}"
    "{{- '<|system|>' -}}"
    "{%- for tool in tools -%}"
    "{{- '@' + tool.function.name + ' ' + (tool.function.parameters.properties | list | join(' ')) -}}"
    "{{- '' if loop.last else '\\n' -}}"
    "{%- endfor -%}"
    "{{- '<|end|>' -}}"
    "{%- endif -%}"
    "{%- for message in messages -%}"
    "{%- if message['role'] not in ['system', 'user', 'assistant', 'tool'] -%}"
    "{{- raise_exception('there is no role ' + message['role'] + ', only system, user, assistant and tool') -}}"
    "{%- endif -%}"
    "{{- '<|' + message['role'] + '|>' -}}"
    "{%- if message['role'] == 'assistant' -%}"
    "{%- generation -%}"
    "{{- message['content'] or '' -}}"
    "{%- for call in (message.tool_calls or []) if not message['content'] -%}"
    "{{- '@' + call.function.name + ' ' + (call.function.arguments | tojson) + ('' if loop.last else '\\n') -}}"
    "{%- endfor -%}"
    "{{- '<|end|>' -}}{%- endgeneration -%}"
    "{%- else -%}{{- (message['content'] or '') + '<|end|>' -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def character_tokenizer(max_length: int = 2048) -> Any:
    """A `PreTrainedTokenizerFast` of 104 tokens; it pads on the right and adds no special tokens."""
    tokenizer = _tokenizer(CHARACTERS, r"[\s\S]", max_length, drops_spaces=False)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def piece_tokenizer(pieces: Iterable[str], max_length: int = 2048) -> Any:
    """A tokenizer with one token for each of `pieces`, longest first, and one per character for everything else.

    A piece that begins or ends with a letter or digit only matches at a word boundary. Spaces between pieces are
    dropped, spaces inside a piece are kept: text made only of pieces decodes to itself. It has no chat template: its
    models read and write plain text.
    """
    known = list(dict.fromkeys(pieces))
    longest = sorted((piece for piece in known if len(piece) > 1), key=len, reverse=True)
    either = "|".join([*map(_whole, longest), r"\n", r"\S"])
    return _tokenizer([*known, *CHARACTERS], either, max_length, drops_spaces=True)


def _whole(piece: str) -> str:
    before, behind = (r"\b" if end.isalnum() else "" for end in (piece[0], piece[-1]))
    return f"{before}{re.escape(piece)}{behind}"


def _tokenizer(texts: Iterable[str], pattern: str, max_length: int, *, drops_spaces: bool) -> Any:
    tokenizers, transformers = import_extra("tokenizers"), import_extra("transformers")
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys((*SPECIALS, *texts)))}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token=UNKNOWN))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split(
        tokenizers.Regex(pattern), behavior="removed" if drops_spaces else "isolated", invert=drops_spaces
    )
    inner.decoder = tokenizers.decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token=PAD, unk_token=UNKNOWN, bos_token=BEGIN, eos_token=END, additional_special_tokens=list(ROLES),
        padding_side="right", model_max_length=max_length, clean_up_tokenization_spaces=False,
    )  # fmt: skip


LAYERS, WIDTH, HEADS, CONTEXT = 4, 128, 4, 2048


def tiny_model(
    seed: int = 0, *, layers: int = LAYERS, width: int = WIDTH, kv_heads: int = HEADS, tokenizer: Any = None
) -> tuple[Any, Any]:
    """A fresh model (in evaluation mode, float32, on the CPU) and its tokenizer: by characters, or the one given."""
    transformers = import_extra("transformers")
    tokenizer = tokenizer or character_tokenizer(CONTEXT)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers,
        num_attention_heads=HEADS, num_key_value_heads=kv_heads, max_position_embeddings=CONTEXT,
        tie_word_embeddings=True, pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    # Transformers initialises from the global generator, which must not move; _initialise then overwrites all of it.
    with torch.random.fork_rng(devices=[]):
        model = transformers.LlamaForCausalLM(config)
    _initialise(model, layers, torch.Generator().manual_seed(seed))
    return model.float().eval(), tokenizer


@torch.no_grad()
def _initialise(model: Any, layers: int, generator: torch.Generator) -> None:
    """Normal weights of variance 1/width; matrices that write to the residual stream shrink with the model's depth.

    The embeddings too: at a fifth of that, the model needs up to four times as many steps before it learns to add.
    """
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            continue
        std = 1 / math.sqrt(parameter.shape[1])
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            std /= math.sqrt(2 * layers)
        parameter.normal_(0.0, std, generator=generator)
