"""The HTTP routes, one file per subject. Each declares routers that `app.py` includes.

jobs, runs    training jobs, and the runs they make      chat       our chat API, and OpenAI's
workflows     design, check, simulate, convert           websocket  what is sent while it happens
system        health, metrics, scaling                   page       the API's documentation, and the app
"""
