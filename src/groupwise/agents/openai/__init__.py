"""OpenAI's chat API over an engine: for the service, behind `/v1`, and for agent programs in training.

requests           a request body → a checked `CompletionRequest`
forced_calls       a grammar for requests that must be answered by calling a tool
completion         the answer, complete or streamed
door               the same API for programs in training, whose tokens are recorded
"""
