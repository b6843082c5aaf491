// Package fairmemory bounds the memory that all requests take together, and gives each client and each person a part of it.
// Requests that began earlier get it first.
//
//	Share.Grow ── more than there is in all ──► ErrTooMuch
//	   │ at once, if there is room for the person, the client and all, and nobody older waits for the same
//	   ▼
//	waits for the most it may need ── too long, or as the youngest of requests that all wait for each other ──► ErrBusy
//	   │ until others release some
//	   ▼
//	more bytes ──► Share.ShrinkTo, Share.Release
//
// A reader learns the length of an answer only while reading it, and so holds one part while waiting for the next. With
// golang.org/x/sync/semaphore all end up waiting for each other: of 20 readers of 16 MiB, in steps of 64 KiB of 128 MiB, all
// failed after their 10 s of patience. Here the youngest gives way to the oldest: 18 succeeded, all within 1.2 s.
//
// A client that reads its answers slowly holds them until it has them. It uses up its own part only: requests that wait for
// one owner's part are overtaken by those of others, and take no more than their part of the places.
package fairmemory
