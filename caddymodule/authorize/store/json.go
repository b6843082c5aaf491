package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// GetJSON returns the decoded value of the given key, or nil if there is none.
func GetJSON[T any](ctx context.Context, s Store, key string) (*T, error) {
	value, err := s.Get(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return FromJSON[T](value)
}

// recordVersion is the format version of records encoded by [ToJSON].
const recordVersion = 1

// ErrNewerVersion means that a record was written by a newer version, and that its members may have a different meaning.
var ErrNewerVersion = errors.New("record was written by a newer version of caddy-fhir; upgrade this gateway")

// versionPrefix is the beginning of a record that contains a version.
const versionPrefix = `{"v":`

// ToJSON encodes a struct as a record, with the version of its format.
func ToJSON(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	members := bytes.TrimPrefix(text, []byte("{"))
	value := append(strconv.AppendInt([]byte(versionPrefix), recordVersion, 10), ',')
	if string(members) == "}" {
		value = value[:len(value)-1]
	}
	return append(value, members...), nil
}

// versionOf returns the version of a record; 0 if it contains none.
func versionOf(value []byte) int {
	afterPrefix, ok := bytes.CutPrefix(value, []byte(versionPrefix))
	if !ok {
		return 0
	}
	digits := afterPrefix[:len(afterPrefix)-len(bytes.TrimLeft(afterPrefix, "0123456789"))]
	version, err := strconv.Atoi(string(digits))
	if err != nil {
		return math.MaxInt // the version is malformed or far too high
	}
	return version
}

// FromJSON decodes a record; nil if value is nil. The error is [ErrNewerVersion] for a record written by a newer version.
func FromJSON[T any](value []byte) (*T, error) {
	switch {
	case value == nil:
		return nil, nil
	case versionOf(value) > recordVersion:
		return nil, ErrNewerVersion
	}
	v := new(T)
	if err := json.Unmarshal(value, v); err != nil {
		return nil, err
	}
	return v, nil
}

// batchSize is the number of entries that [DeleteFunc] reads in one step.
const batchSize = 100

// DeleteFunc deletes the matching entries with a key prefix. It continues after errors and returns how many it deleted.
func DeleteFunc[T any](ctx context.Context, s Store, prefix string, match func(*T) bool) (deleted int, err error) {
	keys, err := s.List(ctx, prefix)
	if err != nil {
		return 0, err
	}
	return DeleteKeys(ctx, s, keys, match)
}

// DeleteKeys is like [DeleteFunc], but checks only the entries with the given keys.
func DeleteKeys[T any](ctx context.Context, s Store, keys []string, match func(*T) bool) (deleted int, err error) {
	var errs []error
	for batch := range slices.Chunk(keys, batchSize) {
		n, err := deleteBatch(ctx, s, batch, match)
		deleted += n
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", KindOf(batch[0]), err))
		}
	}
	return deleted, errors.Join(errs...)
}

// EachBatch calls do with the existing entries of the given keys, in batches of batchSize keys. It stops at the first error.
func EachBatch[T any](ctx context.Context, s Store, keys []string, do func(batch []*T) error) error {
	for batch := range slices.Chunk(keys, batchSize) {
		values, err := ReadValues(ctx, s, batch...)
		var all []*T
		for _, value := range values {
			v, decodeErr := FromJSON[T](value)
			if err = errors.Join(err, decodeErr); v != nil {
				all = append(all, v)
			}
		}
		if err == nil {
			err = do(all)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteBatch is like [DeleteKeys], but reads all keys in one step.
func deleteBatch[T any](ctx context.Context, s Store, keys []string, match func(*T) bool) (deleted int, err error) {
	values, err := ReadValues(ctx, s, keys...)
	if err != nil {
		return 0, err
	}
	var errs []error
	var calls []*Call
	for i, value := range values {
		v, err := FromJSON[T](value)
		if v != nil && match(v) {
			calls = append(calls, &Call{Op: Delete, Key: keys[i]})
		}
		errs = append(errs, err)
	}
	err = Do(ctx, NewStep(s, calls...))
	return len(calls), errors.Join(append(errs, err)...)
}
