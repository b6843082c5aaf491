package expansion

import (
	"io"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
)

// Writer writes the ValueSet that $expand returns.
type Writer struct {
	x     *Expansion
	get   bool          // for a GET: a list unless a tree is asked for, and always an offset
	shape *compose.Tree // of the page; nil: a list

	echo       []byte // expansion.parameter
	identifier []byte
	room       struct { // for a usual echo and for identifier
		echo       [256]byte
		identifier [len("urn:uuid:") + 36]byte
	}
	stream stream

	extensions extensionWriter
	shown      []codesystem.Text
	lastSystem struct { // the last one written, and its place
		system   uint32
		from, to int
	}
	prefetched byte
}

// appendNumber appends a number, or 0 for nil.
func appendNumber(dst []byte, n *int) []byte {
	if n == nil {
		return append(dst, '0')
	}
	return strconv.AppendInt(dst, int64(*n), 10)
}

// Article adds the indefinite article to a content mode.
func Article(noun string) string {
	if noun == string(definitions.ContentExample) {
		return "an " + noun
	}
	return "a " + noun
}

// chunk is how many bytes of an answer are made before they are written.
const chunk = 64 << 10

type stream struct {
	out    io.Writer // nil: the answer is made whole
	failed error     // of writing
}

// write writes part of the answer, unless an earlier write failed.
func (s *stream) write(part []byte) {
	if s.failed == nil {
		_, s.failed = s.out.Write(part)
	}
}

// flush writes what has been made of a streamed answer if it is enough.
func (w *Writer) flush(dst []byte) []byte {
	if w.stream.out == nil || len(dst) < chunk {
		return dst
	}
	w.stream.write(dst)
	w.lastSystem.to = 0
	return dst[:0]
}
