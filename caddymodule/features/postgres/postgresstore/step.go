package postgresstore

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A step is calls as the procedure takes them.
type step struct {
	calls   []*store.Call // in their own order
	changes []*store.Call // by key, so that no two steps wait for each other
	gets    []*store.Call
	args    arguments
	adds    int64 // at most so many rows, for which there must be room
	spare   int64 // rows of unbounded kinds, at most
}

// arguments are those of the procedure, with an element for each change.
type arguments struct {
	ops       []int16
	keys      []string
	olds      [][]byte
	items     [][]byte
	mosts     []int64
	lifetimes []int64 // in milliseconds
	follows   []bool
	asked     []string
	number    string // the same for all trials
}

// newStep prepares a step. It refuses a key that a column of text cannot hold.
func newStep(calls []*store.Call, config *Config) (*step, error) {
	p := &step{calls: calls, args: arguments{asked: []string{}, number: mark + strconv.FormatUint(rand.Uint64(), 36)}}
	for _, c := range calls {
		c.Err = checkKey(c.Key)
		switch {
		case c.Err != nil:
			return nil, c.Err
		case c.Op == store.Get:
			p.gets = append(p.gets, c)
			p.args.asked = append(p.args.asked, c.Key)
			continue
		case c.Stores() && slices.Contains(config.Unbounded, store.KindOf(c.Key)):
			p.spare++
		case c.Stores():
			p.adds++
		}
		p.changes = append(p.changes, c)
	}
	slices.SortFunc(p.changes, func(a, b *store.Call) int { return cmp.Compare(a.Key, b.Key) })
	for _, c := range p.changes {
		p.args.add(c, config.follows(c.Key))
	}
	return p, nil
}

// mark begins the keys of rows that are no entries.
const mark = "#"

func checkKey(key string) error {
	if key == "" || strings.HasPrefix(key, mark) || strings.ContainsRune(key, 0) || strings.ToValidUTF8(key, "") != key {
		return fmt.Errorf("%q cannot be a key in PostgreSQL", key)
	}
	return nil
}

func (a *arguments) add(c *store.Call, followed bool) {
	a.ops = append(a.ops, int16(c.Op))
	a.keys = append(a.keys, c.Key)
	a.olds = append(a.olds, filled(c.Old))
	a.items = append(a.items, filled(c.Value))
	a.mosts = append(a.mosts, int64(c.Max))
	a.lifetimes = append(a.lifetimes, int64((c.TTL+time.Millisecond-1)/time.Millisecond))
	a.follows = append(a.follows, followed)
}

// filled is not nil, which would be NULL.
func filled(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// make makes a step in one round trip.
func (s *Store) make(ctx context.Context, conn *pgxpool.Conn, p *step) error {
	sql := &s.database.sql
	if len(p.changes) == 0 {
		var got [][]byte
		err := conn.QueryRow(ctx, sql.get, p.args.asked).Scan(&got)
		if err == nil {
			p.fill(got)
		}
		return err
	}
	free, err := s.room.free(ctx, conn, p.adds)
	if err != nil {
		return err
	}
	channel, a := "", &p.args
	if slices.Contains(a.follows, true) {
		channel = sql.channel
	}
	var failed int
	var answers, got [][]byte
	err = conn.QueryRow(
		ctx, sql.do, a.ops, a.keys, a.olds, a.items, a.mosts, a.lifetimes, a.follows, a.asked,
		a.number, free+p.spare, s.database.config.SynchronousCommit, channel,
	).Scan(&failed, &answers, &got)
	switch {
	case err != nil:
		return err
	case failed != 0:
		return p.refuse(failed, answers)
	}
	for i, c := range p.changes {
		if c.Op == store.Take {
			c.Value = answers[i]
		}
	}
	p.fill(got)
	return nil
}

func (p *step) fill(got [][]byte) {
	for i, c := range p.gets {
		c.Value = got[i]
	}
}

// refuse says which call failed: the first that fails by what is held now, or else, if that
// has changed since, the one that the procedure stopped at.
func (p *step) refuse(failed int, held [][]byte) error {
	if failed < 0 {
		c := p.changes[-failed-1]
		c.Err = store.ErrFull
		return c.Err
	}
	for _, c := range p.calls {
		i := slices.Index(p.changes, c)
		if i < 0 {
			continue
		}
		if err := c.Check(held[i], held[i] != nil); err != nil {
			return err
		}
	}
	c := p.changes[failed-1]
	c.Err = map[store.Op]error{
		store.Add: store.ErrExists, store.Swap: store.ErrChanged, store.Take: store.ErrNotFound, store.Append: store.ErrTooLong,
	}[c.Op]
	return c.Err
}
