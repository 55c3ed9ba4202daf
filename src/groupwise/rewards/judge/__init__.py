"""A language model as a judge, over HTTP. Start with `judge_reward`; a call then goes through

rubrics              what the judge looks for: criteria with weights, by domain
orders               in which orders attempts are shown, and what places do to marks
question_and_answer  the prompt, and the reading and checking of what comes back
retries              concurrency, pauses and a circuit breaker
endpoint             providers, keys and one HTTP call
drift                whether the judge still judges: constant scores, disagreement, order effect, cost
records              the cache of answers, the record of calls, and the counters
"""
