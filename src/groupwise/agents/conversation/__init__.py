"""Conversations: what a model is shown, what it says, and which of the tokens are its own.

Training walks down this list; open `chat_format` first:

    chat_format        messages → tokens in the model's chat format, and sampled tokens → text
    chat_template      what the model's template does, found by letting it render; message_shape: what it wants to read
    streaming          the same while the tokens are being sampled
    call_formats       tool calls in a model's text, for each family of models
    prompts            a problem with one answer as prompt tokens
    rollouts           groups of conversations with an environment, as trajectories
    custom_rollout     the same with your own agent code, through an OpenAI-like client
    completion_client  that client, and a rollout function with its tasks

Chatting with a model uses these; open `multiturn_agent` first:

    multiturn_agent    many conversations at once over one engine
    turn               one message, the answer to it and the tools called in between
    compression        an overlong conversation in fewer tokens
    extraction         the lines of a conversation that its summary keeps
    recall_tool        the tool with which the model looks up what was left out
    dialogues          a database of dialogues to show as examples
    store              conversations in an SQLite file
    chat               one conversation from synchronous code, as the command uses it
"""
