"""LlamaIndex: a retriever, a reranker and the model that reads what it kept, by OpenInference.

The reranker scores by the length of a text, and the model is this file's own: the recording needs
no download. It was recorded by hand: `make test-frameworks` does not run it yet.
"""

from books import QUERIES, TEXTS, found, ranked
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.llms import ChatMessage, ChatResponse, CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_chat_callback
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode

dispatcher = get_dispatcher(__name__)


class Search(BaseRetriever):
    def _retrieve(self, query_bundle):
        return [
            NodeWithScore(node=TextNode(text=text, metadata=metadata), score=0.5)
            for text, metadata in found(query_bundle.query_str)
        ]


class Shortest(BaseNodePostprocessor):
    """Stands for a cross-encoder, which would be downloaded: it keeps the best document."""

    def _postprocess_nodes(self, nodes, query_bundle=None):
        query = query_bundle.query_str
        dispatcher.event(ReRankStartEvent(query=query, nodes=nodes, top_n=1, model_name="shortest"))
        scores = ranked(query, [node.node.text for node in nodes])
        best = [NodeWithScore(node=nodes[i].node, score=score) for i, score in scores[:1]]
        dispatcher.event(ReRankEndEvent(nodes=best))
        return best


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


engine = RetrieverQueryEngine.from_args(Search(), llm=Reader(), node_postprocessors=[Shortest()])
for query in QUERIES:
    print(engine.query(query))
