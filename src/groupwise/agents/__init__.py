"""Language models that learn: single answers, conversations with tools, and a supervised warm start.

Three products share one policy (a causal language model) and one engine that samples for it:

    declaration          what the package knows about the three before a run asks for one; start here
    language_product     problems → groups of answers → reward → training rows
    agent_product        scenarios → groups of conversations with an environment → reward → training rows
    warm_start           demonstrations → training rows with advantage 1

In the order data flows:

    checks               what is checked of settings before there is a run, without torch
    model_start          which weights a run starts from, and how it finds them again
    data/                problems with one answer: built-in tasks, data files, reasoning-gym
    environments/        the other side of a conversation: contract, ready-made ones, checker
    tools/               functions and HTTP APIs that a model may call
    conversation/        messages ↔ tokens, rollouts, one turn, stored chats
    memory/              what an agent remembers about its users
    attempt_workers      what workers do: the other side of conversations, and rewards
    strategies/          how to conduct customer service, technical support, teaching and sales
    evaluation           held-out problems: accuracy, pass@k
    program_reward       code in an answer, run against tests in a sandbox
    program_tasks        a task's tests, its prompt's helpers and its reference solution, from its columns
    program_checks       whether tests reward nonsense or refuse a right program, found before a run

For people who use a trained model: `agent` and `settings` (an agent from Python), `conversation/chat` (the command),
`openai/`, `chat_service` and `chat_worker` (the service), `export` (a folder for Transformers), `commands` (the
command line), `starter` (`groupwise init` for data).
"""
