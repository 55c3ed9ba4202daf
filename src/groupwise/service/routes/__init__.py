"""The HTTP routes, one file per subject; each declares a `router` that `app.py` includes.

jobs, runs      training jobs, and the runs they make          chat, completions   our chat, and OpenAI's format
workflows       design, check, simulate, convert               live                the WebSocket
metrics, system scaling, health, who am I                      docs, page          the API's page, and the app"""
