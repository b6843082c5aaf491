package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// GetJSON decodes the entry under key; nil if there is none.
func GetJSON[T any](ctx context.Context, s Store, key string) (*T, error) {
	value, err := s.Get(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	v := new(T)
	if err == nil {
		err = json.Unmarshal(value, v)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// DeleteFunc deletes the entries with a prefix that match, and returns how many. It
// continues after an error, so that one bad entry does not keep the others.
func DeleteFunc[T any](ctx context.Context, s Store, prefix string, match func(*T) bool) (deleted int, err error) {
	keys, err := s.List(ctx, prefix)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, key := range keys {
		v, err := GetJSON[T](ctx, s, key)
		if v != nil && match(v) {
			deleted++
			err = s.Delete(ctx, key)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", strings.TrimSuffix(prefix, ":"), err))
		}
	}
	return deleted, errors.Join(errs...)
}
