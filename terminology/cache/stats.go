package cache

// Stats is what has become of requests and answers since the cache was made, and what it holds.
type Stats struct {
	// Hits, Stale, Misses and Bypassed are requests: answered by a fresh answer, by a stale one, by asking
	// the producer, and past the cache. Those answered by a stale one after asking in vain are in both.
	Hits, Stale, Misses, Bypassed uint64

	// Collapsed are those of the misses that were answered by what another one had asked for.
	Collapsed uint64

	// NotModified are answers that the client had already.
	NotModified uint64

	// Revalidated are old answers that the producer said to be still good.
	Revalidated uint64

	// Failures are the producer's failures that a stale answer hid.
	Failures uint64

	// Evictions are answers that were removed to make room; Rejected those for which none was made;
	// Invalidated those that were removed by an invalidation.
	Evictions, Rejected, Invalidated uint64

	// Entries and Bytes are what is held.
	Entries, Bytes int64
}

// Stats returns the numbers.
func (c *Cache) Stats() Stats {
	s := Stats{
		Hits: c.hits.Load(), Stale: c.stale.Load(), Misses: c.misses.Load(), Bypassed: c.bypassed.Load(),
		Collapsed: c.collapsed.Load(), NotModified: c.notModified.Load(),
		Revalidated: c.confirmed.Load(), Failures: c.failures.Load(),
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	s.Evictions, s.Rejected, s.Invalidated = c.store.evicted, c.store.rejected, c.store.removed
	s.Entries, s.Bytes = int64(len(c.store.entries)), c.store.bytes()
	return s
}
