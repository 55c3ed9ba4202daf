"""OpenAI's chat API over an engine; the service puts it behind `/v1`.

requests           a request body → a checked `CompletionRequest`
completion         the answer, complete or streamed
"""
