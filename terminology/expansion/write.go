package expansion

import (
	"fmt"
	"io"
	"strconv"
)

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

// WriteTo writes the answer while it is made, in a buffer that may be larger afterwards.
func (w *Writer) WriteTo(out io.Writer, buffer *[]byte) error {
	w.stream.out = out
	*buffer = w.Append((*buffer)[:0])
	w.stream.write(*buffer)
	if w.stream.failed != nil {
		return fmt.Errorf("writing the answer: %w", w.stream.failed)
	}
	return nil
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

// Tag returns the entity tag of an answer. The identifier covers what it was made of; the tag adds the format and, by
// its timestamp, when the library was loaded.
func (w *Writer) Tag(xml, pretty bool) string {
	tag := append(append(make([]byte, 0, 64), '"'), w.identifier[len("urn:uuid:"):]...)
	tag = strconv.AppendInt(append(tag, '-'), w.x.Library.Loaded.Unix(), 36)
	if xml {
		tag = append(tag, 'x')
	}
	if pretty {
		tag = append(tag, 'p')
	}
	if w.get {
		tag = append(tag, 'l')
	}
	return string(append(w.x.query.subset.appendTag(tag), '"'))
}
