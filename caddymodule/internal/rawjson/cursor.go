// Package rawjson reads JSON in place. A [Cursor] scans a text once and returns values, or their raw text, without decoding
// unused parts. It also validates the parts that it skips.
//
// The syntax is strict, so that every reader interprets a text in the same way: RFC 8259 to the letter, valid UTF-8, no
// unpaired surrogates, no leading zeros in numbers, no nesting deeper than [MaxDepth], and no duplicate names in objects.
//
//	cursor.go  the Cursor: objects and arrays, strings, raw text; validation of skipped values; errors with their offset
//	edit.go    setting or removing a member of an object while preserving the other bytes: WithMember, WithoutMember
//
// The guard uses it for texts that it inspects or rewrites, except streamed texts (guard/internal/address). Texts that are
// decoded into structs are read with encoding/json, and signed texts with strictjson.
//
// The package jsontext (github.com/go-json-experiment/json) is equally strict but takes 2.4 times as long to validate a Bundle
// of records (138 MB/s instead of 338 MB/s). For the cost in a search, see docs/evidence/performance.md.
package rawjson

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// Cursor reads the values of a JSON text in sequence. After an error, every later call fails too, even if a caller ignored the
// error, so that no part of a text is mistaken for another.
type Cursor struct {
	scan   scanner
	offset int
	err    error
}

// NewCursor returns a cursor at the start of text, which must not be modified while the cursor is in use.
func NewCursor(text []byte) *Cursor { return &Cursor{scan: scanner{source: source{text}}} }

// AllowDuplicates makes Skip and Raw accept duplicate names in objects, which makes them a sixth faster. Object still rejects
// duplicates in the object that it reads. AllowDuplicates returns c.
func (c *Cursor) AllowDuplicates() *Cursor {
	c.scan.allowsDuplicates = true
	return c
}

// Offset returns the number of bytes before the cursor. When Object or Array calls a function to read a value, the cursor is at
// the first byte of that value. After a value has been read, the cursor is directly after its last byte.
func (c *Cursor) Offset() int { return c.offset }

// Kind returns the kind of the next value, determined by its first byte.
func (c *Cursor) Kind() Kind {
	if c.err != nil {
		return None
	}
	c.offset = c.scan.source.skipSpace(c.offset)
	return kindsByFirstByte[c.scan.source.peek(c.offset)]
}

// Object reads the next value, which must be an object. It calls member with each name, and member must read the value of that
// member. The name may alias the text.
func (c *Cursor) Object(member func(name []byte) error) error {
	return c.readNested(Object, '}', member)
}

// Array reads the next value, which must be an array. It calls element for each element, and element must read the value.
func (c *Cursor) Array(element func() error) error {
	return c.readNested(Array, ']', func([]byte) error { return element() })
}

func (c *Cursor) readNested(wanted Kind, closing byte, read func(name []byte) error) error {
	if err := c.expect(wanted); err != nil {
		return err
	}
	if c.scan.depth == MaxDepth {
		return c.recordError(&Error{Offset: c.offset, Err: ErrDepth})
	}
	c.scan.depth++
	seen := c.scan.newNameSet(wanted == Object)
	at, err := c.scan.source.skipSpace(c.offset+1), error(nil)
	more := c.scan.source.peek(at) != closing
	if !more {
		at++
	}
	for more && err == nil {
		at, more, err = c.readElement(&seen, at, closing, read)
	}
	c.scan.names = c.scan.names[:seen.start]
	c.scan.depth--
	if err != nil {
		return c.recordError(err)
	}
	c.offset = at
	return nil
}

// readElement calls read for the element or member at an offset, checks that read consumed it, and advances to the next one.
func (c *Cursor) readElement(seen *nameSet, at int, closing byte, read func(name []byte) error) (next int, more bool, err error) {
	var decodedName []byte
	if closing == '}' {
		end, escapes, value, err := c.scan.scanName(seen, at, true)
		if err != nil {
			return end, false, err
		}
		decodedName, at = c.scan.source.decodeString(at+1, end-1, escapes), value
	}
	c.offset = at
	switch err := read(decodedName); {
	case err != nil:
		return at, false, err
	case c.err != nil:
		return at, false, c.err
	case c.offset == at:
		return at, false, &Error{Offset: at, Err: ErrValueNotRead}
	}
	return c.scan.source.skipSeparator(c.offset, closing)
}

// expect advances to the next value and returns an error unless the value is of the wanted kind.
func (c *Cursor) expect(wanted Kind) error {
	switch kind := c.Kind(); {
	case kind == wanted:
		return nil
	case c.err != nil:
		return c.err
	case kind == None:
		return c.recordError(c.scan.source.syntaxError(c.offset, "expected a value"))
	default:
		return c.recordError(&Error{Offset: c.offset, Err: fmt.Errorf("%w: %v, not %v", ErrKind, kind, wanted)})
	}
}

// recordError returns err. If it is the first error, all later calls fail with it.
func (c *Cursor) recordError(err error) error {
	if c.err == nil {
		c.err = err
	}
	return err
}

// Text reads the next value, which must be a string, and returns its decoded text.
func (c *Cursor) Text() (string, error) {
	text, err := c.Bytes()
	return string(text), err
}

// Bytes is like Text but copies only strings that contain escapes. The result may alias the text.
func (c *Cursor) Bytes() ([]byte, error) {
	if err := c.expect(String); err != nil {
		return nil, err
	}
	start := c.offset + 1
	end, escapes, err := c.scan.source.stringEnd(start)
	if err != nil {
		return nil, c.recordError(err)
	}
	c.offset = end
	return c.scan.source.decodeString(start, end-1, escapes), nil
}

// Raw reads the next value and returns its raw text.
func (c *Cursor) Raw() ([]byte, error) {
	c.Kind()
	start := c.offset
	if err := c.Skip(); err != nil {
		return nil, err
	}
	return c.scan.source.text[start:c.offset:c.offset], nil
}

// Skip validates the next value and advances past it.
func (c *Cursor) Skip() error {
	if c.err != nil {
		return c.err
	}
	at, err := c.scan.skip(c.offset)
	if err != nil {
		return c.recordError(err)
	}
	c.offset = at
	return nil
}

// CheckEnd returns an error unless only whitespace follows.
func (c *Cursor) CheckEnd() error {
	if c.err != nil {
		return c.err
	}
	if c.offset = c.scan.source.skipSpace(c.offset); c.offset < len(c.scan.source.text) {
		return c.recordError(c.scan.source.syntaxError(c.offset, "expected the end of the text"))
	}
	return nil
}

// Kind is a kind of JSON value.
type Kind byte

// The kinds of JSON values. None means that no value follows, because the text ends or is invalid.
const (
	None Kind = iota
	Object
	Array
	String
	Number
	Bool
	Null
)

// String returns the kind's name.
func (k Kind) String() string {
	return [...]string{"none", "object", "array", "string", "number", "boolean", "null"}[k]
}

// kindsByFirstByte maps the first byte of a value to the value's kind.
var kindsByFirstByte = [256]Kind{
	'{': Object, '[': Array, '"': String, 't': Bool, 'f': Bool, 'n': Null, '-': Number,
	'0': Number, '1': Number, '2': Number, '3': Number, '4': Number,
	'5': Number, '6': Number, '7': Number, '8': Number, '9': Number,
}

// scanner validates a text starting at an offset. It stores the current depth and the names in the enclosing objects.
type scanner struct {
	source           source
	depth            int
	names            []scannedName // names in the enclosing objects
	allowsDuplicates bool
}

// skip validates the value at i and returns the offset of its end.
func (s *scanner) skip(i int) (int, error) {
	i = s.source.skipSpace(i)
	first := s.source.peek(i)
	switch first {
	case '"':
		end, _, err := s.source.stringEnd(i + 1)
		return end, err
	case '{', '[':
		if s.depth == MaxDepth {
			return i, &Error{Offset: i, Err: ErrDepth}
		}
		s.depth++
		end, err := s.skipNested(i+1, first+2) // in ASCII, the distance between opening and closing bracket is 2 for both kinds
		s.depth--
		return end, err
	case 't':
		return s.source.matchLiteral(i, "true")
	case 'f':
		return s.source.matchLiteral(i, "false")
	case 'n':
		return s.source.matchLiteral(i, "null")
	default:
		if kindsByFirstByte[first] != Number {
			return i, s.source.syntaxError(i, "expected a value")
		}
		return s.source.numberEnd(i)
	}
}

// skipNested validates the object or array that opens directly before i. It returns the offset after the closing bracket.
func (s *scanner) skipNested(i int, closing byte) (int, error) {
	isObject, rejectDuplicates := closing == '}', closing == '}' && !s.allowsDuplicates
	seen := s.newNameSet(rejectDuplicates)
	at := s.source.skipSpace(i)
	if s.source.peek(at) == closing {
		return at + 1, nil
	}
	for more := true; more; {
		var err error
		if isObject {
			if _, _, at, err = s.scanName(&seen, at, rejectDuplicates); err != nil {
				return at, err
			}
		}
		end := plainStringEnd(s.source.text, at)
		if end == 0 {
			if end, err = s.skip(at); err != nil {
				return end, err
			}
		}
		if s.source.peek(end) == ',' {
			at = s.source.skipSpace(end + 1)
			continue
		}
		if at, more, err = s.source.skipSeparator(end, closing); err != nil {
			return at, err
		}
	}
	s.names = s.names[:seen.start]
	return at, nil
}

// numberEnd validates the number at i and returns the offset of its end.
func (s *source) numberEnd(i int) (int, error) {
	if s.peek(i) == '-' {
		i++
	}
	end, err := s.digitsEnd(i)
	if err != nil {
		return end, err
	}
	if s.text[i] == '0' && end > i+1 {
		return i, s.syntaxError(i, "leading zero in a number")
	}
	if s.peek(end) == '.' {
		if end, err = s.digitsEnd(end + 1); err != nil {
			return end, err
		}
	}
	if s.peek(end)|0x20 != 'e' {
		return end, nil
	}
	if b := s.peek(end + 1); b == '+' || b == '-' {
		end++
	}
	return s.digitsEnd(end + 1)
}

// digitsEnd returns the offset of the end of the digits at i. At least one digit is required.
func (s *source) digitsEnd(i int) (int, error) {
	start := i
	for i < len(s.text) && '0' <= s.text[i] && s.text[i] <= '9' {
		i++
	}
	if i == start {
		return i, s.syntaxError(i, "expected a digit")
	}
	return i, nil
}

// maxListedNames is the maximum number of an object's names that are stored in a list. Larger objects use a map, so that the
// time remains linear in the size of the text.
const maxListedNames = 32

// scannedName is a name in an object. It contains no pointers, to reduce the cost of garbage collection.
type scannedName struct {
	start, end int    // position in the text, without the quotation marks
	hash       uint64 // hash of the decoded name, which differs for most names
}

// nameSet is the set of names in an object. The names are stored in scanner.names, beginning at start, or in a map.
type nameSet struct {
	start, mapThreshold int    // mapThreshold is the length of scanner.names at which the set is converted to a map
	bloomFilter         uint64 // Bloom filter over the highest bits of the hashes; if a name's bit is unset, the name is new
	overflow            map[string]struct{}
}

// newNameSet returns an empty set for the names of a new object. rejectDuplicates reports whether names will be added to it.
func (s *scanner) newNameSet(rejectDuplicates bool) nameSet {
	from := len(s.names)
	if !rejectDuplicates {
		return nameSet{start: from}
	}
	if cap(s.names)-from < maxListedNames {
		s.names = slices.Grow(s.names, 2*maxListedNames)
	}
	return nameSet{start: from, mapThreshold: from + maxListedNames - 1}
}

// scanName scans the name at i, the colon, and whitespace up to the value. If rejectDuplicates is true, duplicates are errors.
func (s *scanner) scanName(seen *nameSet, i int, rejectDuplicates bool) (end int, escapes bool, value int, err error) {
	if end = plainStringEnd(s.source.text, i); end == 0 {
		end, escapes, err = s.scanUnusualName(seen, i, rejectDuplicates)
	} else if rejectDuplicates && !s.addName(seen, i+1, end-1, s.source.text[i+1:end-1]) {
		err = &Error{Offset: i, Err: ErrDuplicate}
	}
	if err != nil {
		return end, false, end, err
	}
	if value = s.source.skipSpace(end); s.source.peek(value) != ':' {
		return value, false, value, s.source.syntaxError(value, "expected a colon")
	}
	return end, escapes, s.source.skipSpace(value + 1), nil
}

// scanUnusualName scans a name that may contain escapes or may be invalid.
func (s *scanner) scanUnusualName(seen *nameSet, i int, rejectDuplicates bool) (end int, escapes bool, err error) {
	if s.source.peek(i) != '"' {
		return i, false, s.source.syntaxError(i, "expected a name in quotation marks")
	}
	end, escapes, err = s.source.stringEnd(i + 1)
	if err != nil || !rejectDuplicates {
		return end, escapes, err
	}
	if !s.addName(seen, i+1, end-1, s.source.decodeString(i+1, end-1, escapes)) {
		err = &Error{Offset: i, Err: ErrDuplicate}
	}
	return end, escapes, err
}

// addName adds the name between start and end, which decodes to text, and reports whether the name is new. If there are
// many names, it moves them to a map.
func (s *scanner) addName(seen *nameSet, start, end int, text []byte) bool {
	n := scannedName{start, end, hashName(text)}
	bit := uint64(1) << (n.hash >> 58)
	if seen.bloomFilter&bit == 0 && len(s.names) < seen.mapThreshold {
		seen.bloomFilter |= bit
		s.names = append(s.names, n)
		return true
	}
	if seen.overflow != nil {
		_, exists := seen.overflow[string(text)]
		seen.overflow[string(text)] = struct{}{}
		return !exists
	}
	for _, other := range s.names[seen.start:] {
		if other.hash == n.hash && bytes.Equal(s.nameAt(other), text) {
			return false
		}
	}
	if s.names = append(s.names, n); len(s.names) <= seen.mapThreshold {
		return true
	}
	seen.overflow, seen.mapThreshold = make(map[string]struct{}, 2*maxListedNames), 0
	for _, n := range s.names[seen.start:] {
		seen.overflow[string(s.nameAt(n))] = struct{}{}
	}
	return true
}

// nameAt returns the decoded text of a name.
func (s *scanner) nameAt(n scannedName) []byte {
	return s.source.decodeString(n.start, n.end, bytes.IndexByte(s.source.text[n.start:n.end], '\\') >= 0)
}

// hashName returns a hash of a name's first and last bytes and its length.
func hashName(text []byte) uint64 {
	var sum uint64
	switch n := len(text); {
	case n >= 8:
		sum = binary.LittleEndian.Uint64(text) + 31*binary.LittleEndian.Uint64(text[n-8:])
	case n >= 4:
		sum = uint64(binary.LittleEndian.Uint32(text)) | uint64(binary.LittleEndian.Uint32(text[n-4:]))<<32
	case n > 0:
		sum = uint64(text[0]) | uint64(text[n/2])<<8 | uint64(text[n-1])<<16
	}
	const odd = 0x9e3779b97f4a7c15 // 2⁶⁴ divided by the golden ratio: the highest bits of a product depend on all other bits
	return (sum + uint64(len(text))) * odd
}

// MaxDepth is the maximum nesting depth of objects and arrays.
const MaxDepth = 64

// Bytes that are repeated in all eight positions of a word.
const (
	lowBits     = 0x0101010101010101
	highBits    = 0x80 * lowBits
	quotes      = '"' * lowBits
	backslashes = '\\' * lowBits
	spaces      = ' ' * lowBits
)

// source is a text that is read at given offsets. It has no state.
type source struct{ text []byte }

// syntaxError returns an ErrSyntax at an offset.
func (s *source) syntaxError(at int, problem string) error {
	if at >= len(s.text) {
		at, problem = len(s.text), "unexpected end of the text"
	}
	return &Error{Offset: at, Err: fmt.Errorf("%w: %s", ErrSyntax, problem)}
}

// loadWord returns the eight bytes at i. Bytes after the end of the text are 0.
func (s *source) loadWord(i int) uint64 {
	if i+8 <= len(s.text) {
		return binary.LittleEndian.Uint64(s.text[i:])
	}
	var last [8]byte
	copy(last[:], s.text[min(i, len(s.text)):])
	return binary.LittleEndian.Uint64(last[:])
}

// skipSeparator skips whitespace and the separator after a value. It returns the offset after the closing bracket, or the
// offset of the next element if there is a comma.
func (s *source) skipSeparator(i int, closing byte) (at int, more bool, err error) {
	i = s.skipSpace(i)
	switch s.peek(i) {
	case ',':
		return s.skipSpace(i + 1), true, nil
	case closing:
		return i + 1, false, nil
	default:
		return i, false, s.syntaxError(i, "expected a comma or "+string(closing))
	}
}

// matchLiteral checks that the literal is at i and returns the offset of its end.
func (s *source) matchLiteral(i int, literal string) (int, error) {
	end := i + len(literal)
	if end > len(s.text) || string(s.text[i:end]) != literal {
		return i, s.syntaxError(i, "expected a value")
	}
	return end, nil
}

// peek returns the byte at i. After the end of the text, it returns 0, which valid JSON does not contain.
func (s *source) peek(i int) byte {
	if i < len(s.text) {
		return s.text[i]
	}
	return 0
}

// skipSpace skips whitespace.
func (s *source) skipSpace(i int) int {
	if i < len(s.text) && s.text[i] > ' ' {
		return i
	}
	return s.skipLongSpace(i)
}

// skipLongSpace is like skipSpace but is called at whitespace. It skips eight spaces at a time, because indentation is long.
func (s *source) skipLongSpace(i int) int {
	for ; ; i++ {
		if s.peek(i) == '\n' {
			i++
		}
		for w := s.loadWord(i); ; w = s.loadWord(i) {
			if w != spaces {
				i += bits.TrailingZeros64(w^spaces) / 8
				break
			}
			i += 8
		}
		if b := s.peek(i); b != '\n' && b != '\r' && b != '\t' {
			return i
		}
	}
}

// decodeString returns the decoded text of a string's content between i and end.
func (s *source) decodeString(i, end int, escapes bool) []byte {
	if escapes {
		return s.unescape(i, end)
	}
	return s.text[i:end:end]
}

// unescape returns the decoded text between i and end of a string that has been validated.
func (s *source) unescape(i, end int) []byte {
	decoded := make([]byte, 0, end-i)
	for {
		plainLength := bytes.IndexByte(s.text[i:end], '\\')
		if plainLength < 0 {
			return append(decoded, s.text[i:end]...)
		}
		decoded = append(decoded, s.text[i:i+plainLength]...)
		decoded, i = s.appendEscaped(decoded, i+plainLength+1)
	}
}

// appendEscaped appends the character of the escape sequence with its backslash directly before i.
func (s *source) appendEscaped(decoded []byte, i int) ([]byte, int) {
	switch b := s.text[i]; b {
	case 'u':
		r, end, _ := s.escapedRune(i + 1)
		return utf8.AppendRune(decoded, r), end
	case 'b':
		return append(decoded, '\b'), i + 1
	case 'f':
		return append(decoded, '\f'), i + 1
	case 'n':
		return append(decoded, '\n'), i + 1
	case 'r':
		return append(decoded, '\r'), i + 1
	case 't':
		return append(decoded, '\t'), i + 1
	default:
		return append(decoded, b), i + 1
	}
}

// escapeEnd validates the escape sequence with its backslash directly before i. Surrogates are valid only in pairs.
func (s *source) escapeEnd(i int) (int, error) {
	switch s.peek(i) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1, nil
	case 'u':
		_, end, err := s.escapedRune(i + 1)
		return end, err
	default:
		return i, s.syntaxError(i, "invalid escape")
	}
}

// escapedRune decodes the character with the hexadecimal digits that begin at i.
func (s *source) escapedRune(i int) (r rune, end int, err error) {
	first := s.hex(i)
	if !utf16.IsSurrogate(first) && first >= 0 {
		return first, i + 4, nil
	}
	if s.peek(i+4) == '\\' && s.peek(i+5) == 'u' {
		if r = utf16.DecodeRune(first, s.hex(i+6)); r != utf8.RuneError {
			return r, i + 10, nil
		}
	}
	return 0, i, s.syntaxError(i, `invalid \u escape`)
}

// hex returns the value of the four hexadecimal digits at i, or -1 if they are invalid.
func (s *source) hex(i int) rune {
	if i+4 > len(s.text) {
		return -1
	}
	var number [2]byte
	if _, err := hex.Decode(number[:], s.text[i:i+4]); err != nil {
		return -1
	}
	return rune(number[0])<<8 | rune(number[1])
}

// plainStringEnd returns the offset after the string at i if the string contains only ASCII characters, contains no escapes,
// and is not at the end of the text. Otherwise, it returns 0.
func plainStringEnd(text []byte, i int) int {
	if i >= len(text) || text[i] != '"' {
		return 0
	}
	for i++; i+8 <= len(text); i += 8 {
		w := binary.LittleEndian.Uint64(text[i:])
		if found := ((w ^ quotes - lowBits) | (w ^ backslashes - lowBits) | (w - spaces) | w) & highBits; found != 0 {
			if i += bits.TrailingZeros64(found) / 8; text[i] == '"' {
				return i + 1
			}
			return 0
		}
	}
	return 0
}

// stringEnd validates the string content that begins at i. It returns the offset after the closing quotation mark and whether
// the string contains escapes.
func (s *source) stringEnd(i int) (end int, escapes bool, err error) {
	start, all := i, uint64(0)
	for {
		var read uint64
		i, read = s.findSpecial(i)
		all |= read
		switch s.peek(i) {
		case '"':
			if all&highBits != 0 && !utf8.Valid(s.text[start:i]) {
				return i, escapes, s.syntaxError(start, "string is not UTF-8")
			}
			return i + 1, escapes, nil
		case '\\':
			escapes = true
			if i, err = s.escapeEnd(i + 1); err != nil {
				return i, escapes, err
			}
		default:
			return i, escapes, s.syntaxError(i, "control character in a string")
		}
	}
}

// findSpecial returns the offset of the next special byte of a string: a quotation mark, backslash or control character. It
// also returns the bitwise OR of all preceding bytes. If the highest bits are unset, all of these bytes are ASCII.
func (s *source) findSpecial(i int) (at int, all uint64) {
	for {
		w := s.loadWord(i)
		// The lowest marked byte is the first special byte. Higher marks may be wrong.
		if found := ((w ^ quotes - lowBits) | (w ^ backslashes - lowBits) | (w - spaces)) &^ w & highBits; found != 0 {
			before := bits.TrailingZeros64(found) &^ 7
			return i + before/8, all | w&(1<<before-1)
		}
		all |= w
		i += 8
	}
}

// The kinds of errors. Each is wrapped in an [Error], which adds the offset.
var (
	// ErrSyntax is returned for invalid JSON.
	ErrSyntax = errors.New("invalid JSON")

	// ErrDuplicate is returned for an object with a duplicate name.
	ErrDuplicate = errors.New("duplicate name in an object")

	// ErrDepth is returned for values nested deeper than MaxDepth.
	ErrDepth = errors.New("objects and arrays are nested too deeply")

	// ErrKind is returned if a value is not of the requested kind.
	ErrKind = errors.New("value has the wrong type")

	// ErrValueNotRead is returned if a callback did not read the value that it was called for.
	ErrValueNotRead = errors.New("callback did not read the value")
)

// Error is an error at an offset in a text.
type Error struct {
	// Offset is the number of bytes before the position of the error.
	Offset int

	// Err is, or wraps, one of the errors of this package.
	Err error
}

// Error returns the error and its offset.
func (e *Error) Error() string { return fmt.Sprintf("%v at byte %d", e.Err, e.Offset) }

// Unwrap returns the error without the offset.
func (e *Error) Unwrap() error { return e.Err }
