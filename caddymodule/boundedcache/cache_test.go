package boundedcache

import (
	"slices"
	"sync"
	"testing"
)

// keys returns the keys, most recently used first.
func (c *Cache[K, V]) keys() (keys []K) {
	for e := c.order.Front(); e != nil; e = e.Next() {
		keys = append(keys, e.Value.(*entry[K, V]).key)
	}
	return keys
}

func TestCache(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		cache *Cache[string, int]
		use   func(*Cache[string, int])
		want  []string
		cost  int64
	}{
		{"zero value", new(Cache[string, int]), func(*Cache[string, int]) {}, []string{"d", "c", "b", "a"}, 10},
		{"the least recently used goes", &Cache[string, int]{MaxEntries: 3}, func(*Cache[string, int]) {}, []string{"d", "c", "b"}, 9},
		{"until the rest fits", &Cache[string, int]{MaxCost: 7}, func(*Cache[string, int]) {}, []string{"d", "c"}, 7},
		{"a use keeps", &Cache[string, int]{MaxEntries: 4}, func(c *Cache[string, int]) { c.Get("a"); c.Put("e", 0, 5) }, []string{"e", "a", "d", "c"}, 13},
		{"another value", &Cache[string, int]{MaxEntries: 4}, func(c *Cache[string, int]) { c.Put("b", 7, 6) }, []string{"b", "d", "c", "a"}, 14},
		{"one that alone costs too much", &Cache[string, int]{MaxCost: 10}, func(c *Cache[string, int]) { c.Put("e", 0, 11) }, []string{"e"}, 11},
		{"deleted", new(Cache[string, int]), func(c *Cache[string, int]) { c.Delete("b"); c.Delete("z") }, []string{"d", "c", "a"}, 8},
		{"deleted by value", new(Cache[string, int]), func(c *Cache[string, int]) {
			c.DeleteFunc(func(key string, value int) bool { return value%2 == 0 || key == "a" })
		}, []string{"c"}, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := test.cache
			for i, key := range []string{"a", "b", "c", "d"} {
				c.Put(key, i+1, int64(i+1))
			}
			test.use(c)
			if keys := c.keys(); !slices.Equal(keys, test.want) {
				t.Errorf("keys %v, want %v", keys, test.want)
			}
			if entries, cost := c.Size(); entries != len(test.want) || len(c.entries) != entries || cost != test.cost {
				t.Errorf("%d entries (%d found) cost %d, want %d, %d", entries, len(c.entries), cost, len(test.want), test.cost)
			}
		})
	}
}

func TestGet(t *testing.T) {
	t.Parallel()
	var c Cache[string, int]
	if value, ok := c.Get("a"); ok || value != 0 {
		t.Errorf("an empty cache has %d", value)
	}
	c.Put("a", 1, 0)
	c.Put("a", 2, 0)
	if value, ok := c.Get("a"); !ok || value != 2 {
		t.Errorf("got %d, %t, want 2", value, ok)
	}
}

func TestCacheConcurrently(t *testing.T) {
	t.Parallel()
	c := Cache[int, int]{MaxEntries: 4}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 100 {
				c.Put(i, i, 1)
				if value, ok := c.Get(i); ok && value != i {
					t.Errorf("%d has %d", i, value)
				}
			}
		})
	}
	group.Wait()
	if entries, cost := c.Size(); entries != 4 || cost != 4 {
		t.Errorf("%d entries cost %d, want 4", entries, cost)
	}
}

func BenchmarkGet(b *testing.B) {
	c := Cache[[32]byte, *int]{MaxEntries: 20_000}
	var key [32]byte
	for i := range 20_000 {
		key[0], key[1] = byte(i), byte(i>>8)
		c.Put(key, &i, 1)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		key[0], key[1] = byte(i), 1
		if _, ok := c.Get(key); !ok {
			b.Fatal("missing")
		}
	}
}

func BenchmarkPutFull(b *testing.B) {
	c := Cache[int, *int]{MaxEntries: 20_000}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Put(i, nil, 1)
	}
}
