package textindex

// Corpus is the documents to search, known by their positions. The bytes that its methods return must not be changed.
type Corpus interface {
	// Len returns the number of documents.
	Len() int

	// Code returns a document's code.
	Code(doc uint32) []byte

	// Display returns what a person sees of a document: its display, or else its code.
	Display(doc uint32) []byte

	// AppendOthers appends the other texts by which a document is found.
	AppendOthers(dst [][]byte, doc uint32) [][]byte

	// Inactive reports whether a document comes after others that match equally well.
	Inactive(doc uint32) bool
}
