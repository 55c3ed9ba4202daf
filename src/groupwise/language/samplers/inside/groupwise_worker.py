"""An extension of vLLM's workers: `vllm serve --worker-extension-cls groupwise_worker.CompleteReload`."""

from typing import Any


class CompleteReload:
    """Becomes a base class of vLLM's `Worker`, whose methods are called by name over HTTP."""

    model_runner: Any
    reload_weights: Any

    def groupwise_reload(self, folder: str) -> None:
        """Reload the weights, and pack output heads anew.

        On a CPU vLLM multiplies with packed copies of the weights. `reload_weights` of vLLM 0.32 packs all layers again
        but a head that shares its weight with the embedding, which would keep the weights it began with.
        """
        self.reload_weights(weights_path=folder)
        for module in self.model_runner.get_model().modules():
            if type(module).__name__ == "ParallelLMHead":
                module.quant_method.process_weights_after_loading(module)
