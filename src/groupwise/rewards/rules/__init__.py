"""Rewards that follow rules anyone can check; nothing a model writes is ever run. Start with `components`.

components             replies as words and sentences; length, keywords, similarity
answering              does a reply answer its question? what words alone can say about that
evasions               signs that it does not: evasion, talking down, echoes, the wrong shape
contradictions         does a reply say the opposite of a reference, or of itself?
plain_text             shorthand written out, figures in one form
english                words that fit any question, negations, pairs of words that do not occur
gate                   the part `answers`, and parts that count only for replies that answer
heuristic              a rough score of any reply, for when nothing better can be asked
correctness            the right answer, as text, number or expression; the right format
expressions            the parser and comparison of expressions, for a worker process (needs SymPy)
customer_service       customer service, technical support and sales
teaching_and_writing   teaching and creative writing
safety                 abuse, threats, self-harm, requests for secrets, card numbers
"""
