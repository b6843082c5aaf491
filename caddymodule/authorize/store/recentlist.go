package store

import (
	"context"
	"errors"
	"slices"
	"time"
)

// A RecentList is a bounded list of items of equal length, oldest first.
type RecentList struct {
	Store Store         // holds the list
	Key   string        // of the list in Store
	Max   int           // items
	TTL   time.Duration // of the list, from its latest item

	// Ended reports whether an item no longer counts. Nil: all count.
	Ended func(item string) (bool, error)
}

// Add appends an item, and returns those it dropped to make room.
func (l RecentList) Add(ctx context.Context, item string) (dropped []string, err error) {
	for {
		stored, err := l.Store.Get(ctx, l.Key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		isNew := err != nil
		items, dropped, err := l.fit(append(slices.Clip(stored), item...), len(item))
		switch {
		case err != nil:
			return nil, err
		case isNew:
			err = l.Store.Add(ctx, l.Key, items, l.TTL)
		default:
			err = l.Store.Swap(ctx, l.Key, stored, items, l.TTL)
		}
		if errors.Is(err, ErrExists) || errors.Is(err, ErrChanged) { // concurrently
			continue
		}
		return dropped, err
	}
}

// Items returns the items, each of a size in bytes, the latest first.
func (l RecentList) Items(ctx context.Context, size int) (items []string, err error) {
	stored, err := l.Store.Get(ctx, l.Key)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	for chunk := range slices.Chunk(stored, size) {
		items = append(items, string(chunk))
	}
	slices.Reverse(items)
	return items, err
}

// fit shortens a list that is too long: first by the ended items, then by the oldest.
func (l RecentList) fit(list []byte, size int) (items []byte, dropped []string, err error) {
	if len(list) <= l.Max*size {
		return list, nil, nil
	}
	for chunk := range slices.Chunk(list, size) {
		ended := false
		if l.Ended != nil {
			ended, err = l.Ended(string(chunk))
		}
		if err != nil {
			return nil, nil, err
		}
		if !ended {
			items = append(items, chunk...)
		}
	}
	over := max(0, len(items)-l.Max*size)
	for old := range slices.Chunk(items[:over], size) { // the oldest
		dropped = append(dropped, string(old))
	}
	return items[over:], dropped, nil
}
