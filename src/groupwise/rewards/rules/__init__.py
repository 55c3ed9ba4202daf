"""Rewards that follow rules anyone can check; nothing a model writes is ever run. Start with `components`.

components             replies as words and sentences; length, keywords, similarity and safety
correctness            the right answer, as text, number or expression; the right format
expressions            the parser and comparison of expressions, for a worker process (needs SymPy)
customer_service       customer service, technical support and sales
teaching_and_writing   teaching and creative writing
"""
