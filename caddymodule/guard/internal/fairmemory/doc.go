// Package fairmemory bounds the memory that all requests take together. Requests that began earlier get it first.
//
//	Share.Grow ── more than there is in all ──► ErrTooMuch
//	   │ at once, if it is free and nobody older waits
//	   ▼
//	waits for the most it may need ── too long, or as the youngest of requests that all wait for each other ──► ErrBusy
//	   │ until others release some
//	   ▼
//	more bytes ──► Share.ShrinkTo, Share.Release
//
// A reader learns the length of an answer only while reading it, and so holds one part while waiting for the next. With a
// weighted semaphore, all could end up waiting for each other. Here the youngest one then gives way to the oldest.
package fairmemory
