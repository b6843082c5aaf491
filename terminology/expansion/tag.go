package expansion

import "strconv"

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
