package cache

// Stats counts requests and answers since the cache was made, and what it holds.
type Stats struct {
	// Hits, Stale, Misses and Bypassed are requests answered by a fresh answer, by a stale one, by the producer, and
	// past the cache. A stale answer after a failure counts in Misses too.
	Hits, Stale, Misses, Bypassed uint64

	// Collapsed are the misses that waited for another one's answer.
	Collapsed uint64

	// NotModified are answers that the client had already.
	NotModified uint64

	// Revalidated are stale answers that their producer validated.
	Revalidated uint64

	// Failures are the producer's failures that a stale answer hid.
	Failures uint64

	// Evictions are answers removed to make room; Rejected those for which none was made; Invalidated those removed by
	// an invalidation.
	Evictions, Rejected, Invalidated uint64

	// Entries and Bytes are what is held.
	Entries, Bytes int64
}

// Stats returns the numbers.
func (c *Cache) Stats() Stats {
	s := Stats{
		Hits: c.hits.Load(), Stale: c.stale.Load(), Misses: c.misses.Load(), Bypassed: c.bypassed.Load(),
		Collapsed: c.collapsed.Load(), NotModified: c.notModified.Load(),
		Revalidated: c.validated.Load(), Failures: c.failures.Load(),
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	s.Evictions, s.Rejected, s.Invalidated = c.store.evicted, c.store.rejected, c.store.removed
	s.Entries, s.Bytes = int64(len(c.store.entries)), c.store.bytes()
	return s
}
