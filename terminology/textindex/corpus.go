package textindex

// Corpus is the documents to search, known by their positions. The bytes that its methods return must not be changed.
type Corpus interface {
	// Len returns the number of documents.
	Len() int

	// Code returns a document's code.
	Code(doc uint32) []byte

	// Display returns what a person sees of a document: its display, or else its code.
	Display(doc uint32) []byte

	// AppendOthers appends the other texts by which a document is found. The last ones, so many as foreign says, are in
	// another language than the one that is asked for: none of their words counts as in a head.
	AppendOthers(dst [][]byte, doc uint32) (others [][]byte, foreign int)

	// Rank returns where a document comes among others that match equally well, lower being earlier, as [Ranks] says.
	Rank(doc uint32) uint32

	// Language returns the language of the texts (BCP 47), whose inflections and stop words count.
	Language() string
}
