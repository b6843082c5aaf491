package codesystem

import "encoding/binary"

// TextRef is the place of a string in a [Texts]: its offset, or 0 for "no such string".
type TextRef uint32

// Texts is an arena of strings: each is its length as a varint, then its bytes. It is referred to by
// offsets and holds no pointers, so that it costs the garbage collector nothing and can be mapped from
// a file as it is. Strings may be appended in any order, which JSON needs: an object's members have none.
type Texts []byte

// Append copies s into the arena.
func (t *Texts) Append(s []byte) TextRef {
	if len(*t) == 0 {
		*t = append(*t, 0) // offset 0 stays free to mean "none"
	}
	ref := TextRef(len(*t))
	*t = binary.AppendUvarint(*t, uint64(len(s)))
	*t = append(*t, s...)
	return ref
}

// At returns the string at ref, or nil. The bytes are the arena's own and must not be changed.
func (t Texts) At(ref TextRef) []byte {
	if ref == 0 {
		return nil
	}
	if length := int(t[ref]); length < 0x80 { // as it is for nearly all
		start := int(ref) + 1
		return t[start : start+length : start+length]
	}
	return t.long(ref)
}

// long is at for a string whose length takes more than a byte.
func (t Texts) long(ref TextRef) []byte {
	length, width := binary.Uvarint(t[ref:])
	start := int(ref) + width
	return t[start : start+int(length) : start+int(length)]
}
