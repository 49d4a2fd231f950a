"""What the engine decides by: the sources that a request names, the stages that users bring, reranking and refusal."""
