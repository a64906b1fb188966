// The pages by their names in the address. One with a `section` is reached from that, and has no place in the navigation.

import { cluster, broker } from "/static/page-cluster.js";
import { topic, topics } from "/static/page-topics.js";

export const PAGES = { cluster, topics, topic, broker };
