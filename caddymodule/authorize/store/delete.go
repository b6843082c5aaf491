package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// DeleteFunc deletes the entries with a prefix that match, and returns how many. It
// continues after an error, so that one bad entry does not keep the others.
func DeleteFunc(ctx context.Context, s Store, prefix string, match func(value []byte) (bool, error)) (deleted int, err error) {
	keys, err := s.List(ctx, prefix)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, key := range keys {
		is, err := deleteMatch(ctx, s, key, match)
		if is {
			deleted++
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", strings.TrimSuffix(prefix, ":"), err))
		}
	}
	return deleted, errors.Join(errs...)
}

func deleteMatch(ctx context.Context, s Store, key string, match func([]byte) (bool, error)) (bool, error) {
	value, err := s.Get(ctx, key)
	if errors.Is(err, ErrNotFound) { // just expired
		return false, nil
	}
	if err != nil {
		return false, err
	}
	is, err := match(value)
	if !is || err != nil {
		return false, err
	}
	return true, s.Delete(ctx, key)
}
