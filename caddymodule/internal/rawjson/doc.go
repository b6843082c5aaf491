// Package rawjson reads JSON in place. A [Cursor] passes over a text once, and returns values or their text without
// decoding what nobody asks for. It also checks what it skips.
//
// It is strict, so that a text says the same to every reader: RFC 8259 to the letter, valid UTF-8, no halves of surrogate
// pairs, no number with a leading zero, nothing nested deeper than [MaxDepth], and no name twice in an object.
//
//	cursor.go       the Cursor: objects and arrays, strings, raw text, and the kinds of values
//	scanner.go      values that are only checked, where a number ends, and the names that an object has had so far
//	source.go       the text: white space, what separates values, where a string ends, eight bytes at a time, and what it
//	                says
//	edit.go         objects with a member set or removed, and all else as it was: With, Without
//	error.go        errors, with the offset in the text
//
// The guard reads by it what it judges or rewrites, except texts that pass in pieces (guard/internal/address). Where a text
// becomes a struct, encoding/json decodes it, and strictjson what is signed.
//
// Why not jsontext (github.com/go-json-experiment/json), which is as strict: it takes 2.4 times as long to check a Bundle of
// records (338 MB/s here, 138 MB/s there). What it costs a search, docs/evidence/performance.md says.
package rawjson
