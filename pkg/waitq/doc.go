// Package waitq is the wait queue of the Sentry: objects notify events, tasks
// and epoll sets listen. It mirrors Linux's wait_queue_head_t with poll masks.
package waitq
