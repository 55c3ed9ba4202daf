"""A language model as a judge, over HTTP. Start with `ruler`, the reward; a call then goes through

rubrics      what the judge looks for: criteria with weights, by domain
prompt       the question, and the check of the answer
retries      concurrency, pauses and a circuit breaker
endpoint     providers, keys and one HTTP call
records      the cache of answers, the record of calls, and the counters
"""
