// Package paging seals links to pages for a token, so that they say how far a search has come and nobody else can follow
// or change them.
//
//	page.go   links, and the position of a search that they carry
//	state.go  the encoding of a position, in the link itself or in a store
package paging
