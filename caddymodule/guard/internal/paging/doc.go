// Package paging seals links to pages for a token, so that they say how far a search has come and nobody else can follow
// or change them.
package paging
