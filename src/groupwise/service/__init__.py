"""The service: train, chat, design and watch over HTTP, with jobs that survive being killed.

from groupwise.service import main
main()                                 # the same as `groupwise serve`

A request passes, in this order:

    app.py           the application; start reading here
    guard.py         who is asking (keys.py), from where, how much, how often; every error in one format (refusals.py)
    routes/          one file per subject, with the shapes of requests and answers in schemas.py
    state.py         the parts that the routes share, made from settings.py

and behind the routes:

    jobs.py          the table of jobs (tables.py: SQLite or PostgreSQL), with a lease that says who looks after each
    job_settings.py  from a request to the settings of a run
    ownership.py     whose jobs and runs are whose, and what a key may name, store and delete
    supervisor.py    the thread that starts each job's process (job_slots.py) and records how it ends
    runs.py          run folders as the API shows them; event_stream.py reads and streams their logs
    run_list.py      the list of runs and jobs: searched, sorted, in pages; run_index.py keeps it current
    run_comparison.py  runs side by side, with a verdict
    websocket_connection.py  one client of the live page: what it may say, and what it is sent
    chat_models.py, designs.py   chat and workflows, in worker processes behind sidecar.py
    openapi.py       the API's own description
    metrics.py       what the service counts about itself
"""

from typing import Any


def main(**settings: Any) -> None:
    """Serve until Ctrl-C; the keyword arguments are those of `groupwise.service.settings.ServiceSettings`."""
    from groupwise.service.app import serve
    from groupwise.service.settings import ServiceSettings

    serve(ServiceSettings(**settings))
