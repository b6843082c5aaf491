package textindex

// reader reads the words of documents. It keeps buffers between calls.
type reader struct {
	corpus  Corpus
	spotter spotter  // has the words of all texts of a document
	shown   int      // how many of them are its display's
	line    []byte   // words of the display
	joined  []byte   // words of the code, without spaces
	text    []byte   // of the spots
	others  [][]byte // from the corpus
}

func newReader(c Corpus) reader {
	return reader{corpus: c, spotter: spotter{language: languageOf(c.Language())}}
}

// spots returns the words of the document that was read.
func (r *reader) spots() []spot { return r.spotter.spots }

// readDisplay reads the words of a document's display alone.
func (r *reader) readDisplay(doc uint32) {
	s := &r.spotter
	s.spots = s.spots[:0]
	display := r.corpus.Display(doc)
	r.line = append(r.line[:0], s.folder.words(display)...)
	r.text = s.add(r.text[:0], display)
	r.shown = len(s.spots)
}

// readCode reads the words of a document's code.
func (r *reader) readCode(doc uint32) (line []byte) {
	line = r.spotter.folder.words(r.corpus.Code(doc))
	r.joined = appendJoined(r.joined[:0], line)
	return line
}

// read reads the words of all texts of a document.
func (r *reader) read(doc uint32) {
	r.readDisplay(doc)
	s := &r.spotter
	line := r.readCode(doc)
	if len(r.joined) > 0 {
		s.spots = append(s.spots, spot{word: r.joined, head: true})
	}
	start := len(r.text)
	r.text = append(r.text, line...)
	for line := r.text[start:]; len(line) > 0; {
		var word []byte
		word, line = nextWord(line)
		s.spots = append(s.spots, spot{word: word, head: true})
	}
	others, foreign := r.corpus.AppendOthers(r.others[:0], doc)
	r.others = others
	r.text = s.addAll(r.text, others, foreign, r.line)
}

// bytesPerStep is how many bytes of text one step looks at.
const bytesPerStep = 32

// steps is the cost of looking at the words of the document so many times, in steps of a search.
func (r *reader) steps(times int) int { return 1 + len(r.text)*(1+times)/bytesPerStep }

// forget drops what belongs to a corpus.
func (r *reader) forget() {
	r.corpus = nil
	clear(r.others[:cap(r.others)])
}
