"""Sampling on vLLM servers: the same requests as the engine's, answered over HTTP.

In the order a request passes through:

    sampler_choice   `rollout.sampler` → the engine of this process or the one below
    token_engine     what both have in common
    vllm_engine      a queue, threads, futures and versions around everything below (open this first)
    server_fleet     which servers are in service, and what happens when one is lost
    vllm_server      one server over HTTP, and what its refusals mean
    vllm_checks      is it the same tokenizer, and are they the same weights?
    weight_travel    new weights as an adapter, as a folder, or from GPU to GPU
    nccl_broadcast   the learner's end of the way from GPU to GPU
    inside/          what is put inside a server: reloading weights completely
    server_process   start, find and stop a server in a virtual environment of its own
"""
