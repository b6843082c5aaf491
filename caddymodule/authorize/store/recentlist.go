package store

import (
	"context"
	"errors"
	"slices"
	"time"
)

// A RecentList names a list of items, all equally long, the oldest first.
type RecentList struct {
	// Store holds the list under Key.
	Store Store
	Key   string // of the list

	// Max is how many items there are at most.
	Max int

	// TTL is how long the whole list lasts after the latest item.
	TTL time.Duration

	// Ended says whether an item no longer counts. Nil: all count.
	Ended func(item string) (bool, error)
}

// Add adds an item to the list, and returns those that are too many, which are no
// longer in it.
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
		if errors.Is(err, ErrExists) || errors.Is(err, ErrChanged) { // by another at the same time
			continue
		}
		return dropped, err
	}
}

// fit takes from a list that is too long the items that ended, and then the oldest.
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
	for old := range slices.Chunk(items[:over], size) {
		dropped = append(dropped, string(old))
	}
	return items[over:], dropped, nil
}
