package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// DeleteFunc deletes the entries of a kind that are meant, and returns how many these were.
// What cannot be read is passed over until the end: it must not keep the rest alive.
func DeleteFunc(ctx context.Context, s Store, prefix string, meant func(value []byte) (bool, error)) (deleted int, err error) {
	keys, err := s.List(ctx, prefix)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, key := range keys {
		is, err := deleteMatch(ctx, s, key, meant)
		if is {
			deleted++
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", strings.TrimSuffix(prefix, ":"), err))
		}
	}
	return deleted, errors.Join(errs...)
}

func deleteMatch(ctx context.Context, s Store, key string, meant func([]byte) (bool, error)) (bool, error) {
	value, err := s.Get(ctx, key)
	if errors.Is(err, ErrNotFound) { // ended by itself meanwhile
		return false, nil
	}
	if err != nil {
		return false, err
	}
	is, err := meant(value)
	if !is || err != nil {
		return false, err
	}
	return true, s.Delete(ctx, key)
}
