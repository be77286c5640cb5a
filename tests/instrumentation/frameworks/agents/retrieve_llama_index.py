"""LlamaIndex: a retriever, a reranker that asks a model, and the model that reads what it kept.

The reranker asks the model server which documents are relevant. The model that reads is this file's
own: it answers with the first text that it is given, which tells what reached it.
"""

import os

from books import QUERIES, TEXTS, found, kept
from llama_index.core.llms import ChatMessage, ChatResponse, CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_chat_callback
from llama_index.core.postprocessor import StructuredLLMRerank
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.llms.openai import OpenAI
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

LlamaIndexInstrumentor().instrument()


class Search(BaseRetriever):
    def _retrieve(self, query_bundle):
        return [
            NodeWithScore(node=TextNode(text=text, metadata=metadata), score=0.5)
            for text, metadata in found(query_bundle.query_str)
        ]


class Reader(CustomLLM):
    @property
    def metadata(self):
        return LLMMetadata(model_name="reader", is_chat_model=True)

    @llm_chat_callback()
    def chat(self, messages, **kwargs):
        del kwargs
        told = str(messages[-1].content)
        answer = next(text for text in TEXTS if text in told)
        return ChatResponse(message=ChatMessage(role="assistant", content=answer))

    def complete(self, prompt, **kwargs):
        raise NotImplementedError

    def stream_complete(self, prompt, **kwargs):
        raise NotImplementedError


ranker = OpenAI(model="gpt-4", api_base=os.environ["OPENAI_BASE_URL"])
rerank = StructuredLLMRerank(llm=ranker, top_n=1)
engine = RetrieverQueryEngine.from_args(Search(), llm=Reader(), node_postprocessors=[rerank])
for query in QUERIES:
    answer = engine.query(query)
    kept(query, [(one.node.text, one.score) for one in answer.source_nodes])
