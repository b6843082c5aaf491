// Package fairmemory bounds the memory that requests take together, and gives it to those first that began first.
//
//	Share.Grow ── more than there is in all ──► ErrTooMuch
//	   │ at once, if it is free and nobody older waits
//	   ▼
//	waits for the most it may need ── too long, or as the youngest of requests that all wait for each other ──► ErrBusy
//	   │ until others have given back
//	   ▼
//	more bytes ──► Share.ShrinkTo, Share.Release
//
// Who reads an answer learns only on the way how long it is, and so holds one part while waiting for the next. With a
// weighted semaphore, all could come to wait for each other. Here the youngest one then gives way to the oldest.
package fairmemory
