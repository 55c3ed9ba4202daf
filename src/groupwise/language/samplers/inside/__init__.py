"""What runs inside a vLLM server, which has none of Groupwise's other modules: this folder is put on its path.

groupwise_worker   a method of vLLM's workers that reloads weights completely
"""
